// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// Files are PEM files: a certificate with its chain, its key, and the CAs that the other side's certificate must be signed by.
type Files struct {
	Cert, Key, CA string
}

// PEM is a certificate with its chain, its key, and the CAs that the other side's certificate must be signed by.
type PEM struct {
	Cert, Key, CA []byte
}

// Source provides certificates to Credentials. Read is called at each handshake, concurrently, so it must be fast. It returns the
// certificate that is valid now, and does not modify it afterwards.
type Source interface {
	Read() (PEM, error)
	fmt.Stringer // for errors
}

// Read returns the content of the files.
func (f Files) Read() (PEM, error) {
	var content [3][]byte
	for i, path := range [...]string{f.Cert, f.Key, f.CA} {
		raw, err := os.ReadFile(path)
		if err != nil {
			return PEM{}, fmt.Errorf("reading credentials: %w", err)
		}
		content[i] = raw
	}
	return PEM{Cert: content[0], Key: content[1], CA: content[2]}, nil
}

func (f Files) String() string {
	return fmt.Sprintf("the certificate %s with the key %s and the CAs %s", f.Cert, f.Key, f.CA)
}

// Credentials are the current content of a Source.
type Credentials struct {
	source Source
	log    logr.Logger

	mu   sync.Mutex
	good *material

	conns connCounts
}

// material is one consistent reading of the source.
type material struct {
	raw  PEM
	cert tls.Certificate
	cas  *x509.CertPool
}

// LoadCredentials reads the files. It fails if they are unusable, because a process must not start without credentials.
func LoadCredentials(files Files, log logr.Logger) (*Credentials, error) {
	return NewCredentials(files, log)
}

// NewCredentials reads the source, and fails if the certificate is unusable.
func NewCredentials(source Source, log logr.Logger) (*Credentials, error) {
	m, err := read(source, nil)
	if err != nil {
		return nil, err
	}
	return &Credentials{source: source, log: log, good: m, conns: newConnCounts()}, nil
}

// Identity returns the certificate's identity.
func (c *Credentials) Identity() (Identity, error) {
	m := c.current()
	if m.missing() {
		return Identity{}, ErrNoCertificate
	}
	return IdentityOf(m.cert.Leaf)
}

// Expiry returns when the certificate expires, or the Unix epoch if there is none.
func (c *Credentials) Expiry() time.Time {
	if m := c.current(); !m.missing() {
		return m.cert.Leaf.NotAfter
	}
	return time.Unix(0, 0)
}

// Register registers the expiry and the lifetime of the certificate as metrics. The certificate is read again at every scrape, as it is at
// every handshake.
func (c *Credentials) Register(registry prometheus.Registerer) error {
	return errors.Join(registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_link_certificate_expiry_timestamp_seconds", Help: "When the certificate that is in use on the link ends; 0: there is none.",
	}, func() float64 { return float64(c.Expiry().Unix()) })), registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_link_certificate_lifetime_seconds",
		Help: "For how long that certificate is valid from its issue, without the hour of backdating; 0: there is none.",
	}, func() float64 { return c.Lifetime().Seconds() })))
}

// current reads the source again. It returns the last good certificate while the source is unusable.
func (c *Credentials) current() *material {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := read(c.source, c.good)
	if errors.Is(err, ErrNoCertificate) {
		return c.good
	}
	if err != nil {
		c.log.Error(err, "cannot use the certificate as it is now, keeping the one read before")
		return c.good
	}
	if m != c.good {
		c.log.Info("certificates changed", "notAfter", m.cert.Leaf.NotAfter)
		c.good = m
	}
	return m
}

// read reads the source. It returns last if the source has not changed.
func read(source Source, last *material) (*material, error) {
	raw, err := source.Read()
	if err != nil {
		return nil, err
	}
	if last != nil && !last.missing() && bytes.Equal(raw.Cert, last.raw.Cert) && bytes.Equal(raw.Key, last.raw.Key) && bytes.Equal(raw.CA,
		last.raw.CA) {
		return last, nil
	}
	m := &material{raw: raw, cas: x509.NewCertPool()}
	if m.cert, err = tls.X509KeyPair(raw.Cert, raw.Key); err != nil {
		return nil, fmt.Errorf("reading %s: %w", source, err)
	}
	if !m.cas.AppendCertsFromPEM(raw.CA) {
		return nil, fmt.Errorf("reading %s: no CA certificate in it", source)
	}
	return m, nil
}

// PublicConfig returns a TLS configuration with the same certificate, for a server whose callers authenticate without one.
func (c *Credentials) PublicConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current().cert, nil },
	}
}

func (c *Credentials) serverConfig(auth tls.ClientAuthType) *tls.Config {
	m := c.current()
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.cert},
		ClientAuth:             auth,
		ClientCAs:              m.cas,
		SessionTicketsDisabled: true,
	}
}

func (c *Credentials) clientConfig(serverName string) *tls.Config {
	m := c.current()
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		Certificates:     []tls.Certificate{m.cert},
		RootCAs:          m.cas,
		ServerName:       serverName,
		VerifyConnection: verifyHub,
	}
}

// verifyHub rejects a certificate of the same CA that does not name a hub, such as that of another cluster's worker.
func verifyHub(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return fmt.Errorf("%w: the server has no certificate", ErrIdentity)
	}
	who, err := IdentityOf(state.PeerCertificates[0])
	if err != nil {
		return err
	}
	if who != Hub() {
		return fmt.Errorf("%w: %s is no hub", ErrIdentity, who)
	}
	return nil
}

// transport makes gRPC use the current credentials at each handshake.
type transport struct {
	*Credentials
	serverName string // overrides the dialled name
	guests     bool   // admits callers without a certificate, as guests
}

var errServerName = errors.New("link: the server name is fixed when dialling")

func (t transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if t.current().missing() {
		return nil, nil, ErrNoCertificate
	}
	return clientHandshake(ctx, t.clientConfig(t.serverName), authority, conn)
}

func clientHandshake(ctx context.Context, cfg *tls.Config, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	handshake := begin(conn, computing)
	defer handshake.end()
	return credentials.NewTLS(cfg).ClientHandshake(ctx, authority, handshake)
}

func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	auth := tls.RequireAndVerifyClientCert
	if t.guests {
		auth = tls.VerifyClientCertIfGiven
	}
	handshake := begin(conn, computing)
	secure, info, err := credentials.NewTLS(t.serverConfig(auth)).ServerHandshake(handshake)
	handshake.end()
	if err != nil {
		return nil, nil, err
	}
	if shown, ok := info.(credentials.TLSInfo); !ok || len(shown.State.VerifiedChains) == 0 {
		if !t.guests {
			_ = secure.Close()
			return nil, nil, fmt.Errorf("%w: the peer has no verified certificate", ErrIdentity)
		}
		secure, info = newGuest(secure)
		return secure, info, nil
	}
	if secure, err = t.conns.admit(secure, info); err != nil {
		return nil, nil, err
	}
	if stranger, ok := conn.(interface{ Admit() }); ok {
		stranger.Admit() // it presented a certificate, so it no longer counts as unauthenticated
	}
	return secure, info, nil
}

func (t transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", SecurityVersion: "1.3", ServerName: t.serverName}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

func (transport) OverrideServerName(string) error { return errServerName }
