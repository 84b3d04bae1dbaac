// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/link"
)

// Options configure an Identity. TokenFile, Metrics and Changed are optional.
type Options struct {
	ClusterID string
	Version   string
	Store     Store
	TokenFile string // of an invitation
	// ClusterUID returns the uid of the namespace kube-system.
	ClusterUID func(ctx context.Context) (string, error)
	Clock      clock.WithTicker
	Metrics    prometheus.Registerer
	// Changed is called when Cause has changed. It must not block.
	Changed func()
	Log     logr.Logger
}

// Identity is a link.Source. Only the leader calls its methods, except for Read and Cause.
type Identity struct {
	opts    Options
	metrics metrics
	current atomic.Pointer[link.PEM] // nil if there is none
	wake    chan struct{}
	cause   atomic.Pointer[string]

	mu       sync.Mutex // guards the fields below, and is held during writes to the store
	data     Data
	version  string
	leads    bool         // this process has used the link
	trying   bool         // the next certificate is the current one
	refused  string       // the next certificate, if a hub refused it
	refusal  link.Refusal // of the current certificate
	request  *pending     // a renewal without a response yet
	token    string       // last content of the file
	received time.Time    // when this process got the current certificate; zero if it was already stored
}

// pending is a request for a certificate.
type pending struct {
	key    *ecdsa.PrivateKey
	keyPEM []byte
}

var _ link.Source = (*Identity)(nil)

// New returns an Identity. Call Load before it is used.
func New(opts Options) (*Identity, error) {
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	i := &Identity{opts: opts, metrics: newMetrics(), wake: make(chan struct{}, 1), data: Data{}}
	if opts.Metrics == nil {
		return i, nil
	}
	return i, i.register(opts.Metrics)
}

// String names the store of the identity, for errors.
func (i *Identity) String() string { return i.opts.Store.String() }

// Read returns the current certificate, key and CAs.
func (i *Identity) Read() (link.PEM, error) {
	if p := i.current.Load(); p != nil {
		return *p, nil
	}
	return link.PEM{}, link.ErrNoCertificate
}

// Wake returns a channel that has an element when the next attempt to reach the hub may succeed.
func (i *Identity) Wake() <-chan struct{} { return i.wake }

// Cause returns why this cluster is out of its federation, in a text that does not change between attempts. It is "" unless the identity is
// the reason.
func (i *Identity) Cause() string {
	if c := i.cause.Load(); c != nil {
		return *c
	}
	return ""
}

func (i *Identity) setCause(cause string) {
	if before := i.cause.Swap(&cause); before == nil && cause != "" || before != nil && *before != cause {
		if cause != "" {
			i.opts.Log.Info("Out of the federation; this cluster is served locally", "cause", cause)
		}
		i.opts.Changed()
	}
}

// Load reads the store. If that fails, the identity stays as it is.
func (i *Identity) Load(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.load(ctx)
}

func (i *Identity) load(ctx context.Context) error {
	data, version, err := i.opts.Store.Load(ctx)
	if err != nil {
		return err
	}
	i.data, i.version = data, version
	return i.choose()
}

// save adds values to the stored data. After a conflict, it takes over the data that the other process wrote.
func (i *Identity) save(ctx context.Context, values Data) error {
	err := i.opts.Store.Save(ctx, i.data.with(values), i.version)
	if errors.Is(err, ErrConflict) {
		return errors.Join(err, i.load(ctx))
	}
	if err != nil {
		return err
	}
	return i.load(ctx)
}

// choose makes Read return the next certificate if this process leads and no hub has refused it, else the accepted one.
func (i *Identity) choose() error {
	i.trying = false
	if next := i.data[NextCertName]; i.leads && len(next) > 0 && string(next) != i.refused {
		if p := (link.PEM{Cert: next, Key: i.data[NextKeyName], CA: i.data[TrustName]}); i.check(p) == nil {
			i.trying = true
			i.current.Store(&p)
			return nil
		}
	}
	if len(i.data[CertName]) == 0 {
		i.current.Store(nil)
		return nil
	}
	p := link.PEM{Cert: i.data[CertName], Key: i.data[KeyName], CA: i.data[TrustName]}
	if err := i.check(p); err != nil {
		i.current.Store(nil)
		return fmt.Errorf("%s: %w", i, err)
	}
	i.current.Store(&p)
	return nil
}

// check returns an error if p cannot be this cluster's identity. The hub decides whether it is still valid.
func (i *Identity) check(p link.PEM) error {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	if who, err := link.IdentityOf(pair.Leaf); err != nil || who != link.Cluster(i.opts.ClusterID) {
		return fmt.Errorf("the certificate is of %s, this is %s: %w", who, link.Cluster(i.opts.ClusterID), errors.Join(err, link.ErrIdentity))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(p.CA) {
		return errors.New("no CA certificate in " + TrustName)
	}
	return nil
}

// Trust returns the hash of the CAs that this worker trusts, for its Hello.
func (i *Identity) Trust() string {
	if p := i.current.Load(); p != nil {
		return link.TrustHash(p.CA)
	}
	return ""
}

const (
	// rereadEvery is the interval at which a replica reads what the leader wrote.
	rereadEvery = 3 * time.Second
	// tokenEvery is the interval at which the token is checked.
	tokenEvery = time.Second
)

// NeedLeaderElection returns false: each replica reads.
func (i *Identity) NeedLeaderElection() bool { return false }

// Start rereads the store and the invitation until ctx ends.
func (i *Identity) Start(ctx context.Context) error {
	again := i.opts.Clock.NewTicker(rereadEvery)
	defer again.Stop()
	token := i.opts.Clock.NewTicker(tokenEvery)
	defer token.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-token.C():
			i.lookForToken()
		case <-again.C():
			err := i.Load(ctx)
			if err != nil && !failing && ctx.Err() == nil {
				i.opts.Log.Error(err, "Cannot read the identity, keeping the one that was read before")
			}
			failing = err != nil
		}
	}
}

// renewAt is the share of a certificate's lifetime that is left when the worker asks by itself. This is later than its hub, which asks at a
// fifth.
const renewAt = 0.15

// backdated is how long before its issue a certificate becomes valid.
const backdated = time.Hour

// Due reports whether the current certificate should have been renewed by now, by this process's clock.
func (i *Identity) Due() bool {
	p := i.current.Load()
	if p == nil {
		return false
	}
	certs, err := link.ParseCertificates(p.Cert, maxChain)
	if err != nil {
		return false
	}
	i.mu.Lock()
	received := i.received
	i.mu.Unlock()
	return due(certs[0], received, i.opts.Clock.Now())
}

const maxChain = 8

// due is the pure part of Due. A certificate's lifetime begins with its issue, which is later than its NotBefore.
func due(cert *x509.Certificate, received, now time.Time) bool {
	begin := cert.NotBefore
	if cert.NotAfter.Sub(begin) > backdated {
		begin = begin.Add(backdated)
	}
	if received.After(begin) && received.Before(cert.NotAfter) {
		begin = received
	}
	return float64(cert.NotAfter.Sub(now)) <= renewAt*float64(cert.NotAfter.Sub(begin))
}
