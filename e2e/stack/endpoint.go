// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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

// connectPatience is how long one attempt to connect may take: a forwarded port goes through an API server and a kubelet.
const connectPatience = 20 * time.Second

// Endpoint is where a public API is served, and what it takes to be let in.
type Endpoint struct {
	// Address is host and port.
	Address string
	// CAFile is the CA of the server's certificate; empty: plain text.
	CAFile string
	// TokenFile holds an API key; empty: everybody is let in.
	TokenFile string

	// dial reaches an Address that this machine knows no way to.
	dial func(ctx context.Context, address string) (net.Conn, error)
}

// Flags are atollctl's for this endpoint.
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

// URL is where REST begins.
func (e Endpoint) URL() string {
	if e.CAFile == "" {
		return "http://" + e.Address
	}
	return "https://" + e.Address
}

// HTTPClient makes REST calls. Its idle connections are the caller's to close.
func (e Endpoint) HTTPClient() (*http.Client, error) {
	config, token, err := e.secrets()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: config}
	return &http.Client{Transport: bearer{token: token, next: transport}}, nil
}

// secrets reads what the endpoint's files hold. The configuration is nil for plain text.
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

// bearer shows the API key with every REST call that does not show one itself.
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

// rpcBearer does the same for gRPC.
type rpcBearer string

func (b rpcBearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (rpcBearer) RequireTransportSecurity() bool { return true }

// Client is the public API at one address.
type Client struct {
	sandboxv1.SandboxesClient
	sandboxv1.ClaimsClient
	sandboxv1.ClustersClient
	sandboxv1.EnvsClient
	sandboxv1.HubClient
}

// HubClient speaks to the hub.
func (s *Stack) HubClient() (*Client, error) { return s.client(s.endpoints[""]) }

// WorkerClient speaks to a worker's local API.
func (s *Stack) WorkerClient(cluster string) (*Client, error) {
	return s.client(s.endpoints[cluster])
}

func (s *Stack) client(e Endpoint) (*Client, error) {
	config, token, err := e.secrets()
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		// Programs of a stack are killed and come back; who waits for that should not wait for gRPC's usual back-off as well.
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: connectPatience,
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		}),
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(rpcBearer(token)))
	}
	if e.dial != nil {
		options = append(options, grpc.WithContextDialer(e.dial))
	}
	conn, err := grpc.NewClient("passthrough:///"+e.Address, options...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", e.Address, err)
	}
	s.clients = append(s.clients, conn)
	return &Client{
		SandboxesClient: sandboxv1.NewSandboxesClient(conn), ClaimsClient: sandboxv1.NewClaimsClient(conn),
		ClustersClient: sandboxv1.NewClustersClient(conn), EnvsClient: sandboxv1.NewEnvsClient(conn),
		HubClient: sandboxv1.NewHubClient(conn),
	}, nil
}
