// SPDX-License-Identifier: Apache-2.0

package kubeproxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const patience = 60 * time.Second

var quiet = flag.Duration("quiet", 2*time.Second, "how long a watch goes on without an event before it shows one")

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: registry.example/python}]
`

// Objects are applied, read, listed, changed and deleted, large ones too.
func TestObjects(t *testing.T) {
	alice := as(t, "alice")
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: %s}\n"
	alice.run(fmt.Sprintf(settings, "red"), "apply", "-f", "-")
	alice.run(fmt.Sprintf(settings, "blue"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	if out := alice.run("", "get", "configmap", "settings", "-o", "jsonpath={.data.color}"); out != "blue" {
		t.Errorf("get: %q, want blue", out)
	}
	if out := alice.run("", "get", "configmaps", "-o", "name"); !strings.Contains(out, "configmap/settings\n") {
		t.Errorf("list: %s", out)
	}
	if out := alice.run("", "describe", "configmap", "settings"); !strings.Contains(out, "blue") {
		t.Errorf("describe: %s", out)
	}
	alice.run("", "patch", "configmap", "settings", "--type=merge", "-p", `{"data":{"color":"green"}}`)
	alice.run("", "delete", "configmap", "settings")
	alice.refused(`configmaps "settings" not found`, "get", "configmap", "settings")

	// 1 MiB is the most that a ConfigMap holds.
	large := strings.Repeat("0123456789abcde\n", 1<<20/16-64)
	path := filepath.Join(t.TempDir(), "large")
	must.Succeed(t, os.WriteFile(path, []byte(large), 0o600))
	alice.run("", "create", "configmap", "large", "--from-file=large="+path)
	if out := alice.run("", "get", "configmap", "large", "-o", "jsonpath={.data.large}"); out != large {
		t.Errorf("%d bytes came back, want %d", len(out), len(large))
	}
	alice.run("", "delete", "configmap", "large")
}

// A watch shows each change when it comes; when kubectl ends, it ends at the API server.
func TestWatch(t *testing.T) {
	alice := as(t, "alice")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := alice.command(ctx, "get", "configmaps", "--watch", "-o", "name")
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	next := func(want string) {
		t.Helper()
		late := time.After(patience)
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatalf("the watch ended before %s", want)
				}
				if line == "configmap/"+want {
					return
				}
			case <-late:
				t.Fatalf("the watch does not show %s", want)
			}
		}
	}
	next("kube-root-ca.crt")
	before := watches(t)
	select { // nothing changes for so long
	case line := <-lines:
		t.Errorf("the watch shows %q", line)
	case <-time.After(*quiet):
	}
	for _, name := range []string{"one", "two"} {
		_, err := atoll.Cluster(cluster).Kubectl(ctx, "-n", "shared", "create", "configmap", name)
		must.Succeed(t, err)
		next(name)
	}
	cancel()
	_ = cmd.Wait()
	wait.For(t, patience, "the watch to end at the API server", func(context.Context) error {
		return wait.If(watches(t) == before+1, before)
	})
	wait.For(t, patience, "the hub's tunnels to end", func(ctx context.Context) error {
		n, err := underWay(ctx)
		return errors.Join(err, wait.If(n == "0", n))
	})
}

// watches counts the watches through the hub that have ended. The audit has who impersonated as their user.
func watches(t *testing.T) (n int) {
	t.Helper()
	events, err := planes.Plane(cluster).Audit()
	must.Succeed(t, err)
	for _, e := range events {
		if e.User == "system:serviceaccount:atoll-system:atoll-proxy" && e.Verb == "watch" && e.Resource == "configmaps" {
			n++
		}
	}
	return n
}

// Commands, logs and ports, over WebSockets and over SPDY.
func TestPods(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page") }))
	defer page.Close()
	port := page.URL[strings.LastIndex(page.URL, ":")+1:]
	alice := as(t, "alice")
	alice.run(pod, "apply", "-f", "-")
	alice.run("", "wait", "--for=condition=Ready", "pod/talker", "--timeout=60s")
	for name, env := range map[string][]string{
		"WebSockets": nil,
		"SPDY":       {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
	} {
		t.Run(name, func(t *testing.T) {
			alice := alice
			alice.t, alice.env = t, env
			if out := alice.run("to the command", "exec", "-i", "talker", "--", "cat"); out != "to the command" {
				t.Errorf("exec printed %q", out)
			}
			if out, err := alice.try("", "exec", "talker", "--", "sh", "-c", "exit 3"); err == nil || !strings.Contains(out, "exit code 3") {
				t.Errorf("a command that fails: %v: %s", err, out)
			}
			large := alice.run("", "exec", "talker", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
			if len(large) != 3000000 {
				t.Errorf("%d bytes came of 3000000", len(large))
			}
			alice.run("", "exec", "talker", "--", "sh", "-c", "echo by "+name+` >> "$`+plane.ContainerLogEnv+`"`)
			if out := alice.run("", "logs", "talker"); !strings.Contains(out, "by "+name) {
				t.Errorf("logs: %s", out)
			}
			if body := alice.forwarded(port); body != "a page" {
				t.Errorf("the forwarded port says %q", body)
			}
		})
	}
	alice.run("", "delete", "pod", "talker")
}

// forwarded reads the root of a Pod's port by kubectl port-forward.
func (c caller) forwarded(port string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	cmd := c.command(ctx, "port-forward", "pod/talker", ":"+port)
	address, err := stack.Forward(cmd)
	must.Succeed(c.t, err)
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	response, err := http.Get("http://" + address)
	must.Succeed(c.t, err)
	defer response.Body.Close()
	return string(must.Read(c.t, response.Body))
}

// What users may do is what the cluster's RBAC gives the names that the docs say, as with direct access.
func TestRights(t *testing.T) {
	for who, names := range map[string][]string{
		"alice": {"--as=atoll:key:alice"}, "bob": {"--as=atoll:key:bob"}, "carol": {"--as=atoll:key:carol", "--as-group=atoll:team:red"},
	} {
		through := as(t, who)
		for _, namespace := range []string{"shared", "default"} {
			list := []string{"auth", "can-i", "--list", "-n", namespace}
			direct, err := atoll.Cluster(cluster).Kubectl(t.Context(), append(list, names...)...)
			must.Succeed(t, err)
			if got := through.run("", list...); got != direct {
				t.Errorf("%s in %s: through the hub\n%s\nwant\n%s", who, namespace, got, direct)
			}
		}
		text := through.run("", "auth", "whoami", "-o", "json")
		var review struct {
			Status struct {
				UserInfo struct {
					Username string
					Groups   []string
					Extra    map[string][]string
				}
			}
		}
		must.Succeed(t, json.Unmarshal([]byte(text), &review))
		if me := review.Status.UserInfo; me.Username != "atoll:key:"+who || len(me.Extra) > 0 ||
			strings.Contains(strings.Join(me.Groups, " "), "serviceaccounts") {
			t.Errorf("%s is %+v", who, me)
		}
	}
	alice, bob, carol := as(t, "alice"), as(t, "bob"), as(t, "carol")
	alice.run("", "create", "configmap", "of-alice")
	bob.run("", "get", "configmap", "of-alice")
	bob.refused(`User "atoll:key:bob" cannot delete resource "configmaps"`, "delete", "configmap", "of-alice")
	carol.run("", "get", "configmaps", "-n", "default")
	alice.refused(`User "atoll:key:alice" cannot list resource "configmaps"`, "get", "configmaps", "-n", "default")
	alice.refused(`User "atoll:key:alice" cannot list resource "secrets" in API group "" in the namespace "kube-system"`, "get", "secrets",
		"-n", "kube-system")
	alice.run("", "delete", "configmap", "of-alice")
}

// stamp begins the lines that kubectl logs.
var stamp = regexp.MustCompile(`(?m)^E\d+ [0-9:.]+ +\d+ `)

// Who lacks the permission is refused in the same words whether there is such a cluster or not.
func TestRefused(t *testing.T) {
	as(t, "look").refused("lacks the permission to create clusters/proxy", "get", "configmaps")
	as(t, "bound").refused("needs all teams and all namespaces", "get", "configmaps")
	var words []string
	for _, other := range []string{"west", "nowhere"} {
		out, err := of(t, "carol", other).try("", "get", "configmaps")
		if err == nil || !strings.Contains(out, "is not open to you") {
			t.Errorf("carol in %s: %v: %s", other, err, out)
		}
		words = append(words, strings.ReplaceAll(stamp.ReplaceAllString(out, ""), other, "X"))
	}
	if words[0] != words[1] {
		t.Errorf("the words differ: %q", words)
	}
	alice := as(t, "alice")
	alice.refused("no user but the caller is impersonated", "get", "configmaps", "--as=system:admin", "--as-group=system:masters")
	of(t, "alice", "nowhere").refused("unable to handle the request", "get", "configmaps")
	stranger := alice
	text, err := os.ReadFile(alice.kubeconfig)
	must.Succeed(t, err)
	other := strings.ReplaceAll(string(text), tokenFile("alice"), filepath.Join(scratch, "wrong.token"))
	must.Succeed(t, os.WriteFile(filepath.Join(scratch, "wrong.token"), []byte("atoll_wrong"), 0o600))
	stranger.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(stranger.kubeconfig, []byte(other), 0o600))
	stranger.refused("You must be logged in", "get", "configmaps")
}

// Each request that may change something has a line with its method and path, and none has a query or a body.
func TestAudit(t *testing.T) {
	alice := as(t, "alice")
	alice.run("", "create", "configmap", "audited", "--from-literal=secret=canary-of-a-body")
	alice.refused("not found", "exec", "absent", "--", "echo", "canary-of-a-command")
	alice.run("", "delete", "configmap", "audited")
	data, err := os.ReadFile(auditFile())
	must.Succeed(t, err)
	for _, canary := range []string{"canary-of-a-body", "canary-of-a-command", "command="} {
		if strings.Contains(string(data), canary) {
			t.Errorf("the audit has %s", canary)
		}
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		var e struct {
			Stage, Verb, Cluster, Outcome string
			Who                           struct{ Name string }
			Object                        struct{ Resource string }
			Conversation                  struct{ Kind, Method, Path string }
		}
		must.Succeed(t, json.Unmarshal([]byte(line), &e))
		if e.Conversation.Kind != "kubernetes" {
			continue
		}
		if e.Who.Name == "" || e.Cluster == "" || e.Object.Resource != "clusters/proxy" || e.Verb != "create" {
			t.Errorf("an incomplete line: %s", line)
		}
		if e.Conversation.Method == http.MethodGet && e.Outcome == "ok" && !strings.Contains(e.Conversation.Path, "/pods/talker/") {
			t.Errorf("a line about what only reads: %s", line)
		}
		found[e.Stage+" "+e.Conversation.Method+" "+e.Conversation.Path+" "+e.Outcome] = true
	}
	for _, want := range []string{
		"done POST /api/v1/namespaces/shared/configmaps ok", "done DELETE /api/v1/namespaces/shared/configmaps/audited ok",
	} {
		if !found[want] {
			t.Errorf("the audit lacks %q: %v", want, found)
		}
	}
}

// underWay returns how many requests the hub has tunnels for.
func underWay(ctx context.Context) (string, error) {
	text, err := atoll.Metrics(ctx, "hub")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(line, `atoll_hub_tunnels{kind="kubernetes"} `); ok {
			return strings.TrimSpace(n), nil
		}
	}
	return "", errors.New("the hub does not count its tunnels")
}
