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

// Credentials are the current content of Files.
type Credentials struct {
	files Files
	log   logr.Logger

	mu   sync.Mutex
	good *material

	admitted seats
}

// material is one consistent reading of the files.
type material struct {
	raw  [3][]byte
	cert tls.Certificate
	cas  *x509.CertPool
}

// LoadCredentials reads the files, and fails if they cannot be used; because a process must not start without credentials.
func LoadCredentials(files Files, log logr.Logger) (*Credentials, error) {
	m, err := read(files, nil)
	if err != nil {
		return nil, err
	}
	return &Credentials{files: files, log: log, good: m, admitted: newSeats()}, nil
}

// Identity returns the certificate's identity.
func (c *Credentials) Identity() (Identity, error) { return IdentityOf(c.current().cert.Leaf) }

// Expiry is when the certificate expires.
func (c *Credentials) Expiry() time.Time { return c.current().cert.Leaf.NotAfter }

// Register adds the expiry of the certificate as a metric. The certificate is read again at every scrape, as at every handshake.
func (c *Credentials) Register(registry prometheus.Registerer) error {
	return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_link_certificate_expiry_timestamp_seconds", Help: "When the certificate that is in use on the link ends.",
	}, func() float64 { return float64(c.Expiry().Unix()) }))
}

// current rereads the files. While they cannot be used, the last good reading is.
func (c *Credentials) current() *material {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := read(c.files, c.good)
	if err != nil {
		c.log.Error(err, "cannot use the certificate files as they are now, keeping the ones read before")
		return c.good
	}
	if m != c.good {
		c.log.Info("certificates changed", "notAfter", m.cert.Leaf.NotAfter)
		c.good = m
	}
	return m
}

// read returns last unchanged if the files have not changed since.
func read(files Files, last *material) (*material, error) {
	m := &material{}
	for i, path := range [...]string{files.Cert, files.Key, files.CA} {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading credentials: %w", err)
		}
		m.raw[i] = raw
	}
	if last != nil && bytes.Equal(m.raw[0], last.raw[0]) && bytes.Equal(m.raw[1], last.raw[1]) &&
		bytes.Equal(m.raw[2], last.raw[2]) {
		return last, nil
	}
	var err error
	if m.cert, err = tls.X509KeyPair(m.raw[0], m.raw[1]); err != nil {
		return nil, fmt.Errorf("reading the certificate %s with the key %s: %w", files.Cert, files.Key, err)
	}
	m.cas = x509.NewCertPool()
	if !m.cas.AppendCertsFromPEM(m.raw[2]) {
		return nil, fmt.Errorf("reading %s: no CA certificate in it", files.CA)
	}
	return m, nil
}

// PublicConfig serves TLS with the same certificate to callers that authenticate without a certificate.
func (c *Credentials) PublicConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current().cert, nil },
	}
}

func (c *Credentials) serverConfig() *tls.Config {
	m := c.current()
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.cert},
		ClientAuth:             tls.RequireAndVerifyClientCert,
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

// verifyHub refuses a certificate of the same CA that is not a hub's, such as another cluster's worker's.
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
}

var errServerName = errors.New("link: the server name is fixed when dialling")

func (t transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(t.clientConfig(t.serverName)).ClientHandshake(ctx, authority, conn)
}

func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := credentials.NewTLS(t.serverConfig()).ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	if secure, err = t.admitted.seat(secure, info); err != nil {
		return nil, nil, err
	}
	if stranger, ok := conn.(interface{ Admit() }); ok {
		stranger.Admit() // it has shown a certificate, and no longer counts as unauthenticated
	}
	return secure, info, nil
}

func (t transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", SecurityVersion: "1.3", ServerName: t.serverName}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

func (transport) OverrideServerName(string) error { return errServerName }
