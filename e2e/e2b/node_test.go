// SPDX-License-Identifier: Apache-2.0

//go:build node

package e2b_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/e2b/npm"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
)

var update = flag.Bool("update", false, "write the table of docs/e2b.md")

// many is an Env for many creates at once.
var many = stack.Env{
	Name: "many", Image: "registry.example/many", Runtime: "e2b", Port: env.Port, Members: []stack.Member{{Cluster: cluster, Replicas: 200}},
	Pod: delivered.Pod,
}

// interpreter applies examples/code-interpreter. The image's packages are this machine's.
func interpreter(t *testing.T) {
	t.Helper()
	const modules = "import ipykernel, jupyter_client, matplotlib"
	if out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", modules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\nwant apt-get install --no-install-recommends python3-ipykernel python3-jupyter-client python3-matplotlib", err, out)
	}
	text, err := os.ReadFile("../../examples/code-interpreter/template.yaml")
	must.Succeed(t, err)
	server, err := filepath.Abs("../../examples/code-interpreter/server.py")
	must.Succeed(t, err)
	manifest := strings.Replace(string(text), "/usr/local/bin/code-interpreter]", server+"]", 1)
	must.Succeed(t, stack.Apply(t.Context(), atoll.Cluster(cluster), manifest))
	readyOfAtLeast(t, stack.Env{Name: "code-interpreter-v1"}, 1)
}

// The stock npm package @e2b/code-interpreter runs code in a sandbox of the example.
func TestNpmClientRunsCode(t *testing.T) {
	interpreter(t)
	out, err := node(t, variables(origin), "interpreter.js", "code-interpreter-v1")
	t.Logf("%s", out)
	must.Succeed(t, err)
}

// Each snippet of docs/e2b.md runs.
func TestNpmClientRunsTheDocs(t *testing.T) {
	ready(t)
	readyOfAtLeast(t, reset, 1)
	text, err := os.ReadFile("../../docs/e2b.md")
	must.Succeed(t, err)
	must.Succeed(t, os.MkdirAll("../../bin/e2b-client", 0o755))
	blocks := strings.Split(string(text), "```ts\n")[1:]
	for i, block := range blocks {
		program, _, _ := strings.Cut(block, "```")
		path := filepath.Join("..", "..", "bin", "e2b-client", fmt.Sprintf("docs-%d.js", i))
		must.Succeed(t, os.WriteFile(path, []byte(program), 0o600))
		out, err := node(t, variables(origin), filepath.Base(path))
		if err != nil || i == 0 && string(out) != "hello\n 1\n\n" {
			t.Errorf("snippet %d printed %q, %v:\n%s", i, out, err, program)
		}
	}
	if len(blocks) != 2 {
		t.Errorf("%d snippets were run, want 2", len(blocks))
	}
}

// node runs a program of tools/e2b-client, and returns what it printed.
func node(t *testing.T, variables []string, args ...string) ([]byte, error) {
	t.Helper()
	return npm.Run(t.Context(), "../..", variables, args...)
}

// variables are what a client needs of a gateway.
func variables(origin string) []string {
	return []string{"E2B_API_URL=" + origin, "E2B_SANDBOX_URL=" + origin, "E2B_API_KEY=" + apiKey}
}

// byNames is a gateway by wildcard names and TLS, as an Ingress has it: for versions of the SDK that know no E2B_SANDBOX_URL.
func byNames(t *testing.T) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"*." + domain}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	to, err := url.Parse(origin)
	must.Succeed(t, err)
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
	})
	front.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	front.StartTLS()
	t.Cleanup(front.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must.Succeed(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	_, port, _ := net.SplitHostPort(front.Listener.Addr().String())
	return []string{
		"E2B_DOMAIN=" + domain, "E2B_API_KEY=" + apiKey, "NODE_EXTRA_CA_CERTS=" + ca, "NAMES_PORT=" + port, "NODE_OPTIONS=--import=./names.js",
	}
}

// suite runs the client with a version of the SDK.
func suite(t *testing.T, variables []string, version string) []npm.CallResult {
	t.Helper()
	all, err := npm.Calls(t.Context(), "../..", variables, env.Name, version)
	if err != nil {
		t.Error(err)
	}
	for _, one := range all {
		t.Logf("%s: %s %s %s", version, one.Result, one.Call, one.Detail)
	}
	return all
}

// The stock npm packages work unchanged as docs/e2b.md says, and a worker without a hub serves the newest one in the same way.
func TestNpmClient(t *testing.T) {
	ready(t)
	columns := npm.Packages
	got := map[string][]npm.CallResult{}
	for _, name := range columns {
		to := variables(origin)
		if name == "e2b-1" || name == "e2b-0" {
			to = byNames(t)
		}
		got[name] = suite(t, to, name)
	}
	atWorker := suite(t, variables(atoll.E2BURL(cluster)), columns[0])
	same := func(a, b npm.CallResult) bool { return a.Call == b.Call && a.Result == b.Result }
	if !slices.EqualFunc(got[columns[0]], atWorker, same) {
		t.Errorf("at a worker it is otherwise:\n%v\n%v", got[columns[0]], atWorker)
	}
	if !t.Failed() {
		checkTable(t, table(columns, got))
	}
}

// table is the part of docs/e2b.md that the test has seen.
func table(columns []string, got map[string][]npm.CallResult) string {
	results, calls := map[string]map[string]string{}, []string(nil)
	for _, name := range columns {
		for _, one := range got[name] {
			if results[one.Call] == nil {
				results[one.Call] = map[string]string{}
				calls = append(calls, one.Call)
			}
			results[one.Call][name] = strings.Replace(one.Result, "absent", "–", 1)
		}
	}
	out := "| call | 2.51.0 | 2.26.0 | 1.13.2 | 0.16.2 |\n|---|---|---|---|---|\n"
	for _, call := range calls {
		out += "| `" + call + "` |"
		for _, name := range columns {
			if out += " " + results[call][name]; results[call][name] == "" {
				out += "–"
			}
			out += " |"
		}
		out += "\n"
	}
	return out
}

const tableBegins, tableEnds = "<!-- make e2b-client writes and checks this table -->\n", "<!-- end -->"

func checkTable(t *testing.T, want string) {
	t.Helper()
	const path = "../../docs/e2b.md"
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	before, rest, begins := strings.Cut(string(text), tableBegins)
	has, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has no table between its marks", path)
	}
	if *update {
		err = os.WriteFile(path, []byte(before+tableBegins+want+tableEnds+after), 0o600)
	}
	if err != nil || has != want && !*update {
		t.Errorf("%s has (%v)\n%s, want\n%s", path, err, has, want)
	}
}

// As many creates at once as an agents' framework makes. On a plane each starts a process of atoll-sandboxd on this machine.
func TestNpmClientMakesManyAtOnce(t *testing.T) {
	const n = 200
	if said := atOnce(t, many, n); said.Created != n || said.Ran != n {
		t.Errorf("%d of %d were created, %d ran their command", said.Created, n, said.Ran)
	}
}

// Of many creates at once for which there are few Pods each has a sandbox, or an error by which the client knows that it may come again.
func TestNpmClientIsToldThatThereIsNoRoom(t *testing.T) {
	const n, room = 200, 10
	few := many
	few.Name, few.StartupTimeout, few.Members = "few", "30s", []stack.Member{{Cluster: cluster, Replicas: room}}
	said := atOnce(t, few, n)
	if busy := said.Kinds["ServiceBusyError"] + said.Kinds["RateLimitError"]; said.Created != room || said.Ran != room || busy != n-room {
		t.Errorf("%d of %d were created where there are %d Pods, %d ran their command, %d were told to come again", said.Created, n, room,
			said.Ran, busy)
	}
}

// manySaid is what many.js says.
type manySaid struct {
	Created, Ran int
	Kinds        map[string]int // of errors
}

// atOnce makes n creates of an Env at once with the newest package.
func atOnce(t *testing.T, of stack.Env, n int) (said manySaid) {
	t.Helper()
	must.Succeed(t, of.Apply(t.Context(), atoll.Cluster(cluster)))
	t.Cleanup(func() {
		if _, err := atoll.Cluster(cluster).Kubectl(context.Background(), "delete", "sandboxenv", of.Name); err != nil {
			t.Error(err)
		}
	})
	readyOfAtLeast(t, of, of.Members[0].Replicas)
	out, err := node(t, variables(origin), "many.js", of.Name, fmt.Sprint(n))
	t.Logf("%d creates at once, %d warm Pods: %s", n, of.Members[0].Replicas, out)
	if parsed := json.Unmarshal(out, &said); parsed != nil || err != nil && len(said.Kinds) == 0 {
		t.Fatalf("many.js printed %q: %v, %v", out, parsed, err)
	}
	return said
}
