// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo returns its request.
type echo struct {
	sandboxv1.UnimplementedSandboxesServer
	sandboxv1.UnimplementedClaimsServer
	sandboxv1.UnimplementedClustersServer
	sandboxv1.UnimplementedEnvsServer
	sandboxv1.UnimplementedTemplatesServer
}

func (echo) CreateSandbox(_ context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	if r.GetEnv() == "" {
		return nil, problem.InvalidField("env", "", "the name of an Env")
	}
	return &sandboxv1.Sandbox{Env: r.GetEnv(), ClaimKey: r.GetClaimKey()}, nil
}

func (echo) GetClaim(_ context.Context, r *sandboxv1.GetClaimRequest) (*sandboxv1.Claim, error) {
	return &sandboxv1.Claim{ClaimKey: r.GetClaimKey(), Namespace: r.GetNamespace()}, nil
}

func (echo) GetSandbox(context.Context, *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	return nil, errors.New("disk on fire")
}

func (echo) ReleaseSandbox(ctx context.Context, _ *sandboxv1.ReleaseSandboxRequest) (*sandboxv1.Sandbox, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// start serves echo and returns the address.
func start(t *testing.T, change ...func(*Options)) string {
	t.Helper()
	opts := Options{
		Services: Public(echo{}, echo{}, echo{}, echo{}, echo{}),
		OpenAPI:  sandboxv1.OpenAPI,
		Further: func(r *http.Request) http.Handler {
			id, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v1/extra/")
			if !ok {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if id == "unread" {
					return
				}
				n, err := io.Copy(io.Discard, r.Body)
				_, _ = fmt.Fprint(w, "extra ", id, " ", n, " ", err)
			})
		},
		Drain: 100 * time.Millisecond,
	}
	for _, f := range change {
		f(&opts)
	}
	server, err := New(opts)
	must.Succeed(t, err)
	return testserver.Serve(t, server.Serve)
}

func dial(t *testing.T, address string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rest makes one HTTP call and returns status and body.
func rest(t *testing.T, client *http.Client, method, url, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.Succeed(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	must.Succeed(t, err)
	defer func() { _ = resp.Body.Close() }()
	text := must.Read(t, resp.Body)
	return resp.StatusCode, string(text), resp.Header
}

func TestBothProtocolsOnOnePort(t *testing.T) {
	for _, secure := range []bool{false, true} {
		creds, client, scheme := insecure.NewCredentials(), &http.Client{Transport: &http.Transport{}}, "http://"
		var opts []func(*Options)
		if secure {
			cert, pool := selfSigned(t)
			opts = append(opts, func(o *Options) { o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}} })
			creds = credentials.NewTLS(&tls.Config{RootCAs: pool})
			client.Transport = &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
			scheme = "https://"
		}
		address := start(t, opts...)
		t.Cleanup(client.CloseIdleConnections)

		conn := dial(t, address, creds)
		got, err := sandboxv1.NewSandboxesClient(conn).CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Env: "demo"})
		if err != nil || got.GetEnv() != "demo" {
			t.Errorf("gRPC, TLS %v: %v, %v", secure, got, err)
		}
		health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health: %v, %v", health, err)
		}
		for _, tc := range []struct {
			method, path, body string
			code               int
			want               string
		}{
			{"POST", "/v1/sandboxes", `{"env":"demo"}`, 200, `"env":"demo"`},
			{"GET", "/v1/claims/a%2F%2Fb:c?namespace=ns", "", 200, `"claimKey":"a//b:c"`},
			{"GET", "/v1/extra/7", "", 200, "extra 7 0"},
			{"POST", "/v1/extra/a//..%2fb", strings.Repeat("x", 1<<20), 200, fmt.Sprint("extra a//..%2fb ", 1<<20, " <nil>")},
			{"GET", "/openapi.json", "", 200, `"openapi": "3.1.0"`},
			{"GET", "/healthz", "", 200, "ok"},
			{"POST", "/v1/sandboxes", `{}`, 400, `"errors":[{"field":"env","value":"","valid":"the name of an Env"}]`},
			{"POST", "/v1/sandboxes", `{"nonsense":1}`, 400, `"reason":"INVALID"`},
			{"GET", "/v1/sandboxes/x", "", 500, `"reason":"INTERNAL"`},
			{"POST", "/v1/sandboxes/x:touch", `{}`, 501, `"reason":"UNIMPLEMENTED"`},
			{"GET", "/v1/nothing", "", 404, `"reason":"NOT_FOUND"`},
			{"PUT", "/v1/sandboxes", "", 405, `"reason":"INVALID"`},
		} {
			code, body, header := rest(t, client, tc.method, scheme+address+tc.path, tc.body)
			if code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("%s %s: %d %s, want %d with %s", tc.method, tc.path, code, body, tc.code, tc.want)
			}
			if code >= 400 && header.Get("Content-Type") != problem.ContentType {
				t.Errorf("%s %s: an error as %s", tc.method, tc.path, header.Get("Content-Type"))
			}
		}
	}
}

func TestIdempotencyKeyIsTheClaimKey(t *testing.T) {
	address := start(t)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	url := "http://" + address + "/v1/sandboxes"
	if _, body, _ := rest(t, client, "POST", url, `{"env":"demo"}`, "Idempotency-Key", "k1"); !strings.Contains(body, `"claimKey":"k1"`) {
		t.Errorf("header alone: %s", body)
	}
	if code, body, _ := rest(t, client, "POST", url, `{"env":"demo","claimKey":"k1"}`, "Idempotency-Key", "k1"); code != 200 {
		t.Errorf("header and body agree: %d %s", code, body)
	}
	code, body, _ := rest(t, client, "POST", url, `{"env":"demo","claimKey":"k2"}`, "Idempotency-Key", "k1")
	if code != 400 || !strings.Contains(body, `"field":"claimKey"`) {
		t.Errorf("header and body differ: %d %s", code, body)
	}
	_, body, _ = rest(t, client, "POST", url, `{}`, "Idempotency-Key", "k3")
	if !strings.Contains(body, `"claimKey":"k3"`) {
		t.Errorf("the error does not name the claim key: %s", body)
	}
}

func TestInterceptorsSeeBothProtocols(t *testing.T) {
	deny := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, problem.New(problem.Unauthenticated, "who are you?")
	}
	address := start(t, func(o *Options) { o.Unary = []grpc.UnaryServerInterceptor{deny} })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	if code, body, _ := rest(t, client, "POST", "http://"+address+"/v1/sandboxes", `{"env":"demo"}`); code != 401 {
		t.Errorf("REST: %d %s", code, body)
	}
	_, err := sandboxv1.NewSandboxesClient(dial(t, address, insecure.NewCredentials())).
		CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Env: "demo"})
	if got := problem.FromError(err); got.Reason != problem.Unauthenticated {
		t.Errorf("gRPC: %v", err)
	}
}

func TestEndsWithConnectionsThatSayNothing(t *testing.T) {
	address := start(t)
	silent, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	// Cleanup of start runs first of all and would hang here.
}

func TestCheckLoopback(t *testing.T) {
	for address, loopback := range map[string]bool{
		"127.0.0.1:8080": true, "[::1]:8080": true, "localhost:8080": true,
		":8080": false, "0.0.0.0:8080": false, "10.0.0.1:8080": false, "nonsense": false,
	} {
		if err := CheckLoopback(address); (err == nil) != loopback {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.Succeed(t, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
