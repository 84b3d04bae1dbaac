// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// connectPatience bounds one attempt to connect: a forwarded port goes through an API server and a kubelet.
const connectPatience = 20 * time.Second

// Endpoint is the address and the credentials of a public API.
type Endpoint struct {
	// Address is host and port.
	Address string
	// CAFile is the CA of the server's certificate; empty: plaintext.
	CAFile string
	// TokenFile holds an API key; empty: none is needed.
	TokenFile string

	// dial connects to an Address that this machine cannot reach directly.
	dial func(ctx context.Context, address string) (net.Conn, error)
}

// Flags returns atollctl's flags for this endpoint.
func (e Endpoint) Flags() []string {
	flags := []string{"--server", e.Address}
	if e.CAFile != "" {
		flags = append(flags, "--ca-file", e.CAFile)
	}
	if e.TokenFile != "" {
		flags = append(flags, "--token-file", e.TokenFile)
	}
	return flags
}

// URL is the root of the REST API.
func (e Endpoint) URL() string {
	if e.CAFile == "" {
		return "http://" + e.Address
	}
	return "https://" + e.Address
}

// HTTPClient makes REST calls. The caller closes its idle connections.
func (e Endpoint) HTTPClient() (*http.Client, error) {
	config, token, err := e.secrets()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: config}
	return &http.Client{Transport: bearer{token: token, next: transport}}, nil
}

// secrets reads the endpoint's files. The configuration is nil for plaintext.
func (e Endpoint) secrets() (config *tls.Config, token string, err error) {
	if e.CAFile != "" {
		pem, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, "", fmt.Errorf("reading the CA: %w", err)
		}
		config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, "", errors.New("reading the CA: no certificate")
		}
	}
	if e.TokenFile != "" {
		data, err := os.ReadFile(e.TokenFile)
		if err != nil {
			return nil, "", fmt.Errorf("reading the API key: %w", err)
		}
		token = strings.TrimSpace(string(data))
	}
	return config, token, nil
}

// bearer adds the API key to every REST call without one.
type bearer struct {
	token string
	next  *http.Transport
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

func (b bearer) CloseIdleConnections() { b.next.CloseIdleConnections() }

// rpcBearer does the same for gRPC. Planes are on loopback, and need no TLS.
type rpcBearer struct {
	token  string
	secure bool
}

func (b rpcBearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b rpcBearer) RequireTransportSecurity() bool { return b.secure }

// Client is the public API at one address.
type Client struct {
	sandboxv1.SandboxesClient
	sandboxv1.ClaimsClient
	sandboxv1.ClustersClient
	sandboxv1.EnvsClient
	sandboxv1.HubClient
	sandboxv1.PkiClient
	sandboxv1.AccessClient
}

// HubClient returns a client of the hub.
func (s *Stack) HubClient() (*Client, error) { return s.client(s.endpoints[""]) }

// ReplicaClients returns a client of each replica of the hub, by its name.
func (s *Stack) ReplicaClients() (map[string]*Client, error) {
	out := map[string]*Client{}
	for name, e := range s.replicas {
		c, err := s.client(e)
		if err != nil {
			return nil, err
		}
		out[name] = c
	}
	return out, nil
}

// WorkerClient returns a client of a worker's local API.
func (s *Stack) WorkerClient(cluster string) (*Client, error) {
	return s.client(s.endpoints[cluster])
}

func (s *Stack) client(e Endpoint) (*Client, error) {
	c, conn, err := e.Client()
	if err == nil {
		s.clients = append(s.clients, conn)
	}
	return c, err
}

// Client returns a client of the endpoint, and its connection, for the caller to close.
func (e Endpoint) Client() (*Client, io.Closer, error) {
	config, token, err := e.secrets()
	if err != nil {
		return nil, nil, err
	}
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		// Programs of a stack are killed and restarted; a caller that waits for that should not also wait for gRPC's default
		// back-off.
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: connectPatience,
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		}),
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(rpcBearer{token: token, secure: config != nil}))
	}
	if e.dial != nil {
		options = append(options, grpc.WithContextDialer(e.dial))
	}
	conn, err := grpc.NewClient("passthrough:///"+e.Address, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to %s: %w", e.Address, err)
	}
	return &Client{
		SandboxesClient: sandboxv1.NewSandboxesClient(conn), ClaimsClient: sandboxv1.NewClaimsClient(conn),
		ClustersClient: sandboxv1.NewClustersClient(conn), EnvsClient: sandboxv1.NewEnvsClient(conn),
		HubClient: sandboxv1.NewHubClient(conn), PkiClient: sandboxv1.NewPkiClient(conn), AccessClient: sandboxv1.NewAccessClient(conn),
	}, conn, nil
}
