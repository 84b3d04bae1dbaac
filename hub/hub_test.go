// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/problem"
)

func TestMain(m *testing.M) {
	if os.Getenv(asHub) != "" {
		main()
		return
	}
	// lumberjack never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// running is a hub on its own ports.
type running struct{ api, link, metrics, health string }

func testOptions(t *testing.T) *options {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.New(filepath.Join(dir, "pki"))
	must.Succeed(t, err)
	files, err := authority.Hub("127.0.0.1")
	must.Succeed(t, err)
	return &options{listen: "127.0.0.1:0", dataDir: filepath.Join(dir, "data"), tls: files, retention: time.Hour}
}

// start runs a hub until the test ends.
func start(t *testing.T, o *options) running {
	t.Helper()
	h := &hub{log: testlog.New(t), metrics: prometheus.NewRegistry()}
	must.Succeed(t, h.build(t.Context(), o))
	at, stop := onPorts(t, h)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return at
}

// onPorts serves a hub that is built, on its own ports, until it is stopped.
func onPorts(t *testing.T, h *hub) (at running, stop func() error) {
	t.Helper()
	listeners, err := listen("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0")
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.serve(ctx, listeners) }()
	at = running{api: listeners[0].Addr().String(), link: listeners[1].Addr().String(), metrics: listeners[2].Addr().String(),
		health: listeners[3].Addr().String()}
	return at, func() error {
		cancel()
		return errors.Join(<-served, h.close())
	}
}

// call returns the status and the body of a response, to a request with a token or without.
func call(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.Succeed(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	text := must.Read(t, resp.Body)
	must.Succeed(t, resp.Body.Close())
	return resp.StatusCode, string(text)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return call(t, http.MethodGet, url, "", "")
}

func TestTheHubServes(t *testing.T) {
	h := start(t, testOptions(t))
	for url, want := range map[string]string{
		h.health + "/livez":     "ok",
		h.health + "/readyz":    "ok",
		h.metrics + "/metrics":  "atoll_hub_claim_keys_expired_total",
		h.api + "/openapi.json": `"/v1/sandboxes"`,
		h.api + "/v1/clusters":  `{"clusters":[]`,
		h.api + "/v1/replicas":  `"reachable":true`,
		h.api + "/v1/sandboxes": `"sandboxes":[]`,
		h.api + "/v1/envs":      `"envs":[]`,
	} {
		code, body := get(t, "http://"+url)
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", url, code, body)
		}
	}
	conn := testserver.Dial(t, h.api)
	_, err := sandboxv1.NewSandboxesClient(conn).CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Env: "demo", ClaimKey: "k"})
	if e := problem.FromError(err); e == nil || e.Reason != problem.NotFound || e.ClaimKey != "k" {
		t.Errorf("by gRPC: %v", err)
	}
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", health, err)
	}
}

func TestASecondHubOnTheSameStoreRefuses(t *testing.T) {
	o := testOptions(t)
	start(t, o)
	second := &hub{log: testlog.New(t), metrics: prometheus.NewRegistry()}
	defer func() { _ = second.close() }()
	err := second.build(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "claims.db") || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("error %v", err)
	}
}

// TestAHubWaitsForTheOneBeforeIt: after a forced Pod deletion the successor starts while the Pod is still ending.
func TestAHubWaitsForTheOneBeforeIt(t *testing.T) {
	o := testOptions(t)
	first := &hub{log: testlog.New(t), metrics: prometheus.NewRegistry()}
	must.Succeed(t, first.build(t.Context(), o))
	waiting := make(chan struct{}, 100)
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "Waiting for another hub") {
			waiting <- struct{}{}
		}
	}, funcr.Options{})
	patient := *o
	patient.lockWait = time.Minute
	second := &hub{log: log, metrics: prometheus.NewRegistry()}
	built := make(chan error, 1)
	go func() { built <- second.build(t.Context(), &patient) }()
	<-waiting
	if err := first.close(); err != nil {
		t.Error(err)
	}
	if err := <-built; err != nil {
		t.Error(err)
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
}

func TestAnotherIdentityIsNoHub(t *testing.T) {
	o := testOptions(t)
	authority, err := pki.New(filepath.Join(t.TempDir(), "pki"))
	must.Succeed(t, err)
	o.tls, err = authority.Cluster("east")
	must.Succeed(t, err)
	h := &hub{log: testlog.New(t), metrics: prometheus.NewRegistry()}
	defer func() { _ = h.close() }()
	if err := h.build(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no hub's certificate") {
		t.Fatalf("error %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"--tls-cert-file=hub.crt":                           "want all three, or none",
		"--ca-cert-file=ca.crt":                             "want both or none",
		"--approve=ask":                                     "want auto or manual",
		"--cluster-certificate-lifetime=1s":                 "want 10s to",
		"--listen=:8080":                                    "only loopback is allowed",
		"--store=etcd:localhost:2379":                       "want https://HOST:PORT",
		"--store=bbolt:":                                    "want bbolt:DIRECTORY",
		"--claim-key-retention=0s":                          "want more than 0",
		"--cluster-max-envs=0":                              "--cluster-max-envs: 0 is not valid",
		"--peer-listen=:8444":                               "several replicas need a store that they share, want --store=etcd:",
		"--join=hub-peers":                                  "--gossip-listen: listening on :7946 needs credentials",
		"--log-level=loud":                                  "--log-level",
		"--auth=ldap":                                       `--auth: "ldap" is not valid, want of keys, oidc, kubernetes`,
		"--auth=oidc":                                       "--auth oidc needs --oidc-config-file",
		"--auth=oidc --api-keys-file=x":                     "--api-keys-file is of no use without --auth keys",
		"--auth=keys --oidc-config-file=x":                  "--oidc-config-file is of no use without --auth oidc",
		"--auth-kubernetes-ttl=1h":                          "want 1s to 10m",
		"extra":                                             "there is no atoll-hub extra",
		"api-key new --all":                                 "name: is missing",
		"api-key new --name=x":                              "--team, --all-teams or --all is required",
		"api-key new --name=x --team=t":                     "--namespaces, --all-namespaces or --all is required",
		"api-key new --name=x --team=t --all":               "allTeams: true beside a team",
		"api-key new --name=x --team=t --namespaces=a,b":    "",
		"api-key new --name=x --all-teams --all-namespaces": "",
		"initvolume /dev/null/nowhere":                      "giving away the data directory",
	} {
		_, err := atollHub(t, strings.Fields(args)...)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestAMintedKeyOpensTheHub covers an API key from end to end.
func TestAMintedKeyOpensTheHub(t *testing.T) {
	out, err := atollHub(t, strings.Fields("api-key new --name ci --scopes read --all-teams --namespaces default --valid-for 1h")...)
	must.Succeed(t, err)
	o := testOptions(t)
	o.apiKeysFile = filepath.Join(t.TempDir(), "keys.yaml")
	must.Succeed(t, os.WriteFile(o.apiKeysFile, []byte(out), 0o600))
	at := strings.Index(out, "atoll_")
	token, _, _ := strings.Cut(out[at:], "\n")
	h := start(t, o)
	for _, tc := range []struct {
		method, path, token string
		code                int
	}{
		{"GET", "/v1/clusters", "", 401},
		{"GET", "/v1/clusters", "atoll_other", 401},
		{"GET", "/v1/clusters", token, 200},
		{"GET", "/v1/envs?namespace=prod", token, 403},
		{"POST", "/v1/sandboxes", token, 403},
		{"PUT", "/v1/templates/t", token, 403},
	} {
		code, body := call(t, tc.method, "http://"+h.api+tc.path, tc.token, "{}")
		var doc struct{ Reason string }
		if err := json.Unmarshal([]byte(body), &doc); err != nil || code != tc.code || tc.code >= 400 && doc.Reason == "" {
			t.Errorf("%s %s: %d %+v %v, want %d", tc.method, tc.path, code, doc, err, tc.code)
		}
	}
}

func TestOwnGivesADirectoryAway(t *testing.T) {
	// To the own user: only root can change the owner to another.
	_, err := atollHub(t, "initvolume", t.TempDir(), fmt.Sprint("--uid=", os.Getuid()), fmt.Sprint("--gid=", os.Getgid()))
	must.Succeed(t, err)
}

func TestATokenGoesToAFileOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	mint := func() (string, error) {
		return atollHub(t, "api-key", "new", "--name=ci", "--all", "--token-file="+path)
	}
	entry, err := mint()
	must.Succeed(t, err)
	token, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(token), api.TokenPrefix) {
		t.Errorf("token %q: %v", token, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v %v", info, err)
	}
	if _, err := api.ParseKeys([]byte(entry)); err != nil || strings.Contains(entry, strings.TrimSpace(string(token))) {
		t.Errorf("entry %s: %v", entry, err)
	}
	if _, err := mint(); err == nil {
		t.Error("a second token was written over the first")
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, token) {
		t.Errorf("token now %q: %v", again, err)
	}
}
