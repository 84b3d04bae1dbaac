// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/store"
)

// Fleet provides the clusters' credentials and records the keys of certificates.
type Fleet interface {
	Admit(ctx context.Context, a fleet.Admission) error
	Credentials() []fleet.Credential
}

// Options configure an Authority. Store and Clock are required.
type Options struct {
	Store store.Store // the registry's store
	Clock clock.WithTicker
	Log   logr.Logger
	// Hosts are the names and addresses in the hub's own certificate.
	Hosts []string
	// Address is the address that workers dial, for invitations; empty: not known.
	Address string
	// Lifetime of certificates.
	Lifetime time.Duration
	// Manual means that a cluster that joins waits for an approval.
	Manual bool
	// Given is the operator's CA; nil: the hub creates one.
	Given *pki.CA
	// Files contains the hub's own certificate and further trusted CAs; nil: the authority issues the hub's certificate.
	Files *link.Files
	// Keep writes the state to a place apart from the store before a CA signs for clusters. Nil: there is no such place.
	Keep func(ctx context.Context) error
	// Changed is called with the trusted CAs when they change; may be nil.
	Changed func(bundle []byte)
	// Settle is the minimum duration of a step, so that other replicas know of it. Default: 5 s if the store is shared.
	Settle time.Duration
}

const (
	// DefaultLifetime is the default lifetime of certificates.
	DefaultLifetime = pki.Lifetime
	// MinLifetime is the shortest lifetime of certificates.
	MinLifetime = 10 * time.Second
	settle      = 5 * time.Second
	callTimeout = 5 * time.Second
)

// Authority is the hub's CA. All methods are safe for concurrent use.
type Authority struct {
	opts    Options
	fleet   Fleet
	metrics *metrics

	mu       sync.Mutex
	state    hubstate.Authority
	revision uint64
	view     *view
	own      ownCertificate
	pace     map[string]*paced // of renewals, by cluster
	kept     uint64            // generation up to which Keep has written the state, plus 1
}

// view holds the values that derive from the state. It is immutable.
type view struct {
	generation uint64
	step       hubstate.RotationStep
	cas        []*pki.CA
	signer     *pki.CA
	trust      Trust
	fileCAs    []byte        // content of the files' CAs
	changed    chan struct{} // closed when another view replaces this one
}

// Trust is the set of CAs that clusters must trust, and the CA that signs.
type Trust struct {
	Bundle []byte // PEM
	Hash   string
	Signer string // hash of the CA that signs
	// Renew means that certificates of other CAs are renewed at once.
	Renew bool
}

// ownCertificate is the hub's certificate.
type ownCertificate struct {
	pem    link.PEM
	signer *pki.CA
	renew  time.Time
}

// Open reads the state, or creates a CA if there is none.
func Open(ctx context.Context, o Options) (*Authority, error) {
	if o.Settle == 0 {
		if _, shared := o.Store.(store.Shared); shared {
			o.Settle = settle
		}
	}
	if o.Lifetime == 0 {
		o.Lifetime = DefaultLifetime
	}
	a := &Authority{opts: o, metrics: newMetrics(), pace: map[string]*paced{}}
	if err := a.update(ctx, a.begin); err != nil {
		return nil, err
	}
	if _, err := a.Read(); err != nil {
		return nil, err
	}
	return a, nil
}

var errUnchanged = errors.New("nothing to change")

// begin adds the first CA to the state.
func (a *Authority) begin(s *hubstate.Authority) error {
	if len(s.CAs) > 0 {
		return errUnchanged
	}
	ca, given := a.opts.Given, true
	if ca == nil {
		var err error
		if ca, err = pki.NewCA("atoll federation CA", a.opts.Clock.Now()); err != nil {
			return err
		}
		given = false
	}
	a.opts.Log.Info("The hub has a CA", "hash", ca.Hash(), "given", given)
	s.Since = a.opts.Clock.Now().UTC()
	s.Generation++
	return a.add(s, ca, given)
}

func (a *Authority) add(s *hubstate.Authority, ca *pki.CA, given bool) error {
	key, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	s.CAs = append(s.CAs, hubstate.CA{Cert: ca.PEM(), Key: key, Created: a.opts.Clock.Now().UTC(), Given: given})
	return nil
}

// update applies a change to the stored state. It repeats the change if another replica has changed the state meanwhile.
func (a *Authority) update(ctx context.Context, apply func(*hubstate.Authority) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		state, revision, err := hubstate.LoadAuthority(ctx, a.opts.Store)
		if err != nil {
			return fmt.Errorf("reading the CA: %w", err)
		}
		next := state.Clone()
		sweep(&next, a.opts.Clock.Now())
		if err := apply(&next); errors.Is(err, errUnchanged) {
			return a.take(state, revision)
		} else if err != nil {
			return errors.Join(err, a.take(state, revision))
		}
		revision, err = hubstate.SwapAuthority(ctx, a.opts.Store, revision, next)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return fmt.Errorf("writing the CA: %w", err)
		}
		return a.take(next, revision)
	}
}

// take makes a state the current one, unless the current one is later.
func (a *Authority) take(s hubstate.Authority, revision uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if revision < a.revision || len(s.CAs) == 0 {
		return nil
	}
	a.state, a.revision = s, revision
	if a.view != nil && a.view.generation == s.Generation && a.view.step == s.Step {
		return nil
	}
	cas, err := a.presentFileCAs()
	if err != nil {
		return err
	}
	next, err := a.derive(&s, cas)
	if err != nil {
		return err
	}
	if a.view != nil {
		a.opts.Log.Info("The CA's rotation has come further", "step", stepName(s.Step), "signs", next.trust.Signer)
	}
	a.show(next)
	return nil
}

// show makes a view the current one. Called with mu held.
func (a *Authority) show(next *view) {
	before := a.view
	a.view = next
	if before != nil {
		close(before.changed)
	}
	if a.opts.Changed != nil && (before == nil || before.trust.Hash != next.trust.Hash) {
		a.opts.Changed(next.trust.Bundle)
	}
}

// derive makes the view of a state, with CAs of files.
func (a *Authority) derive(s *hubstate.Authority, fileCAs []byte) (*view, error) {
	v := &view{generation: s.Generation, step: s.Step, fileCAs: fileCAs, changed: make(chan struct{})}
	for _, ca := range s.CAs {
		parsed, err := pki.ParseCA(ca.Cert, ca.Key)
		if err != nil {
			return nil, err
		}
		v.cas = append(v.cas, parsed)
	}
	v.signer = v.cas[signerOf(s)]
	var certs []*x509.Certificate
	for _, i := range trusted(s) {
		certs = append(certs, v.cas[i].Certificate())
	}
	v.trust = Trust{Bundle: pki.Bundle(certs...), Signer: v.signer.Hash(), Renew: s.Step == hubstate.Renewing}
	others, err := pki.ParseCertificates(fileCAs)
	if err != nil {
		return nil, err
	}
	v.trust.Bundle = slices.Concat(v.trust.Bundle, pki.Bundle(others...))
	v.trust.Hash = link.TrustHash(v.trust.Bundle)
	return v, nil
}

func (a *Authority) now() (*view, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view, a.opts.Clock.Now()
}

// Trust returns the CAs that clusters must trust now, and a channel that is closed when they or the signer change.
func (a *Authority) Trust() (Trust, <-chan struct{}) {
	v, _ := a.now()
	return v.trust, v.changed
}

// Read implements link.Source. It returns the hub's own certificate, and renews it when it is due.
func (a *Authority) Read() (link.PEM, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.opts.Files != nil {
		return a.fromFiles()
	}
	// By the wall clock, which workers use as well; because the monotonic one stands still while the machine is suspended.
	now := a.opts.Clock.Now().Round(0)
	if a.own.signer != a.view.signer || !now.Before(a.own.renew) {
		chain, key, err := a.view.signer.SignHub(a.opts.Hosts, a.opts.Lifetime, now)
		if err != nil {
			return link.PEM{}, err
		}
		end := now.Add(a.opts.Lifetime)
		a.own = ownCertificate{
			pem: link.PEM{Cert: chain, Key: key}, signer: a.view.signer,
			renew: RenewalAt(now, end, 0, rand.Float64()), //nolint:gosec // spreads load, guards nothing
		}
	}
	out := a.own.pem
	out.CA = a.view.trust.Bundle
	return out, nil
}

// String implements fmt.Stringer, for errors.
func (a *Authority) String() string { return "the hub's own CA" }

// anchorOf returns the trusted CA that a chain leads to.
func anchorOf(chain, cas []byte) (*x509.Certificate, error) {
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no certificate in it")
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(cas)
	for _, cert := range certs[1:] {
		between.AddCert(cert)
	}
	chains, err := certs[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return nil, fmt.Errorf("the hub's certificate is of no CA that it trusts: %w", err)
	}
	return chains[0][len(chains[0])-1], nil
}

// anchor returns the hash of the CA by which a worker recognizes the hub.
func (a *Authority) anchor() (string, error) {
	own, err := a.Read()
	if err != nil {
		return "", err
	}
	cert, err := anchorOf(own.Cert, own.CA)
	if err != nil {
		return "", err
	}
	return pki.Hash(cert), nil
}

// keep makes sure that Keep has written the state before a CA signs for a cluster.
func (a *Authority) keep(ctx context.Context) error {
	if a.opts.Keep == nil {
		return nil
	}
	a.mu.Lock()
	generation, kept := a.state.Generation, a.kept
	a.mu.Unlock()
	if kept == generation+1 {
		return nil
	}
	if err := a.opts.Keep(ctx); err != nil {
		return fmt.Errorf("keeping the CA apart from the hub's volume: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = max(a.kept, generation+1)
	return nil
}

// Register adds the metrics.
func (a *Authority) Register(r prometheus.Registerer) error {
	return errors.Join(a.metrics.register(r), r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_hub_ca_expiry_timestamp_seconds", Help: "When the CA that signs certificates ends.",
	}, func() float64 {
		v, _ := a.now()
		return float64(v.signer.Certificate().NotAfter.Unix())
	})))
}
