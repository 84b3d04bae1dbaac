// SPDX-License-Identifier: Apache-2.0

// Package docs_test runs the commands of README and docs/, as they stand there, against a federation of real programs on planes.
// In goes each block that is marked sh, in the order of its page, in one shell a page. Commands that run until Ctrl-C get it after
// two seconds. docs/quickstart.md has a suite of its own, package quickstart. The other tests only read the pages.
package docs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

var (
	root, scratch, logs string
	env                 []string
	atoll               *stack.Stack
)

func TestMain(m *testing.M) {
	flag.Parse()
	if readsAlone(flag.Lookup("test.run").Value.String()) {
		root = filepath.Join("..", "..")
		os.Exit(m.Run())
	}
	stack.RunSuite("docs", func(ctx context.Context, dir, logDir string) (code int, err error) {
		if root, err = filepath.Abs("../.."); err != nil {
			return 1, err
		}
		scratch, logs = filepath.Join(dir, "scratch"), logDir
		bin := filepath.Join(scratch, "programs")
		if err := stack.Build(ctx, bin, false); err != nil {
			return 1, err
		}
		helm, err := harness.New(ctx, dir)
		if err != nil {
			return 1, err
		}
		set, err := plane.Up(ctx, plane.Options{
			LogDir: filepath.Join(dir, "planes"), Sandboxd: filepath.Join(bin, "atoll-sandboxd"),
		}, "east", "west")
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, set.Down(ctx)) }()
		// The cluster that the README adds. Its worker is a Deployment without Pods that run.
		noCRDs := filepath.Join(dir, "crds") // the chart brings them
		if err := os.MkdirAll(noCRDs, 0o700); err != nil {
			return 1, err
		}
		added, err := plane.Up(ctx, plane.Options{LogDir: filepath.Join(dir, "planes-added"), CRDDir: noCRDs}, "mars")
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, added.Down(ctx)) }()
		if err := prepare(ctx, bin, set, added, helm); err != nil {
			return 1, err
		}
		code = m.Run()
		return code, atoll.Close()
	})
}

// readsAlone reports whether -run leaves TestPages out, so that the others need no federation. In doubt it does not.
func readsAlone(run string) bool {
	parts := strings.FieldsFunc(run, func(r rune) bool { return r == '/' || r == '|' })
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(part string) bool {
		selects, err := regexp.MatchString(part, "TestPages")
		return err != nil || selects
	})
}

// prepare starts the federation, and lays out the folder that the commands run in.
func prepare(ctx context.Context, bin string, set, added *plane.Set, helm *harness.Helm) (err error) {
	path, kubeconfigs := filepath.Join(scratch, "path"), []string{}
	for _, p := range append(set.Planes(), added.Planes()...) {
		kubeconfigs = append(kubeconfigs, p.Kubeconfig())
	}
	env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "PROGRAMS="+bin, "KUBECONFIG="+strings.Join(kubeconfigs, ":"),
		"KUBECACHEDIR="+filepath.Join(scratch, "kubectl-cache"), "HOME="+scratch, "ATOLL_TOKEN_FILE="+filepath.Join(scratch, "me.token"))
	if err := errors.Join(os.MkdirAll(path, 0o700), os.Symlink(path, filepath.Join(scratch, "bin")),
		os.Symlink(filepath.Join(root, "charts"), filepath.Join(scratch, "charts")),
		os.Symlink(filepath.Join(bin, "atoll-hub"), filepath.Join(path, "atoll-hub")),
		os.Symlink(set.KubectlPath(), filepath.Join(path, "kubectl")), os.Symlink(helm.Path(), filepath.Join(path, "helm")),
		os.WriteFile(filepath.Join(path, "atollctl"), []byte(interrupted), 0o700)); err != nil { //nolint:gosec // a program
		return fmt.Errorf("laying out the folder: %w", err)
	}
	if err := shell(ctx, `atoll-hub api-key new --name me --all --scopes admin --token-file me.token > keys.yaml`); err != nil {
		return err
	}
	keys := filepath.Join(scratch, "keys.yaml")
	atoll, err = stack.Start(ctx, set, stack.Options{
		BinDir: bin, LogDir: logs, Log: os.Stderr, Invited: true, HubArgs: []string{"--api-keys-file=" + keys}, TokenFile: filepath.Join(scratch,
			"me.token"),
	})
	if err != nil {
		return err
	}
	env = append(env, "WEST_TOKEN="+atoll.TokenFile("west"), "ATOLL_SERVER="+atoll.HubEndpoint().Address,
		"AUDIT="+filepath.Join(atoll.HubData(), "audit", "audit.log"))
	// Commands in sandboxes run in this process's folder.
	sandbox := filepath.Join(scratch, "sandbox")
	return errors.Join(os.MkdirAll(sandbox, 0o700), os.Chdir(sandbox))
}

// interrupted is atollctl, for users who leave what does not end by itself with Ctrl-C, and a shell with "exit".
const interrupted = `#!/usr/bin/env bash
case " $* " in
*" top "* | *" logs -f "* | *" port-forward "* | *" -w "*)
  timeout -s INT 2 "$PROGRAMS/atollctl" "$@"; code=$?
  [ $code = 124 ] && exit 0
  echo "atollctl $*: ended by itself with $code" >&2; exit 1 ;;
*" -it "*) exec "$PROGRAMS/atollctl" "$@" <<<"exit" ;;
*) exec "$PROGRAMS/atollctl" "$@" ;;
esac
`

// shell runs commands in the folder.
func shell(ctx context.Context, commands string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = scratch, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

var (
	block    = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	manifest = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
)

// blocks returns a page's blocks of a kind.
func blocks(t *testing.T, kind *regexp.Regexp, page string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	must.Succeed(t, err)
	for _, match := range kind.FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	return found
}

// pages are those with commands. Setup makes what a page's reader has: files, or a backup.
var pages = []struct{ path, setup string }{
	{"README.md", "atollctl pki init"},
	{"docs/sandboxes.md", "mkdir -p src; echo hello > src/hello"},
	{"docs/envs.md", "kubectl create namespace search; " + simulations},
	{"docs/autoscaling.md", simulations},
	{"docs/moving-over.md", ""},
	{"docs/platform-teams.md", "mkdir platform; cd platform"},
	{"docs/operations.md", "mkdir operator; cd operator; ln -s ../charts charts; cp \"$AUDIT\" audit.log; ln -s \"$WEST_TOKEN\" " +
		"west.token; atollctl hub backup " +
		"hub.tar.gz\natoll-hub restore " +
		"hub.tar.gz --data-dir data\n" +
		issued},
	{"docs/fleets.md", fleet},
	{"docs/sizing.md", ""},
}

// fleet has the README's new cluster, without its worker, stand for east, which is served from mgmt. kubectl stands for clusterctl.
const fleet = `mkdir fleet; cd fleet
helm uninstall atoll-worker --kube-context mars -n atoll-system --ignore-not-found
kubectl config view --raw --flatten > all.yaml
export KUBECONFIG=$PWD/all.yaml
kubectl config delete-context east
kubectl config rename-context mars east
kubectl config rename-context west mgmt
for n in atoll-system fleet; do kubectl create namespace $n --dry-run=client -o yaml | kubectl --context mgmt apply -f -; done
clusterctl() { kubectl config view --raw --minify --flatten --context east; }
`

// exception is a block of a page, by how it begins.
type exception struct{ page, begins, why string }

// notRun are blocks that are not run though they have commands, or that do not say what they are.
var notRun = []exception{
	{"docs/architecture.md", "                    callers: gRPC", "a drawing"},
	{"docs/fleets.md", "atollctl kubeconfig east", "the hub's API has no TLS here; e2e/kubeproxy runs them"},
	{"docs/operations.md", "atollctl hub migrate --online", "there is no etcd here; TestMigration of pkg/hubstate has one"},
	{"docs/operations.md", "helm upgrade hub charts/hub", "no hub runs in a cluster here; e2e/charts renders them"},
	{"docs/operations.md", "issuers:", "a file"},
	{"docs/operations.md", "atollctl login", "there is no issuer here; TestLogin of cli has one"},
	{"docs/operations.md", "$ atollctl doctor", "output, of a federation that is ill"},
	{"docs/operations.md", "$ atollctl verify", "output, of a federation that is ill"},
	{"docs/sandboxes.md", "id: AkVl", "events"},
	{"docs/sandboxes.md", "atollctl create --env python --env-var", "the README's template has no daemon; e2e/e2b sets variables"},
}

// issued are certificates in their clusters.
const issued = `for c in east west; do
  kubectl create namespace atoll-system --dry-run=client -o yaml | kubectl --context $c apply -f -
done
atollctl pki init
atollctl pki hub --host hub.example.com --context east | sh
atollctl pki cluster west --context west | sh
`

// simulations are the files of atollctl simulate. env.yaml stands for the user's Env, with a policy.
const simulations = `mkdir -p simulated; cd simulated
cp "$ROOT/e2e/demo/manifests/scaling.yaml" env.yaml; cp env.yaml now.yaml
sed s/Aggressive/Default/ env.yaml > proposed.yaml
printf 'time,over,claims,duration\n2026-01-06T08:00:00Z,60s,12,5m\n2026-01-06T08:01:00Z,60s,31,5m\n' > tuesday.csv
`

// TestPages runs every command. The pages of one federation run one after the other: the README's Env is that of the others.
func TestPages(t *testing.T) {
	env = append(env, "ROOT="+root)
	must.Succeed(t, os.WriteFile(filepath.Join(scratch, "env.yaml"), []byte(blocks(t, manifest, "README.md")[0]), 0o600))
	must.Succeed(t, shell(t.Context(), "for c in east west; do kubectl --context $c apply -f env.yaml; done\n"+
		"atollctl envs default/python --wait=ready --timeout 1m"))
	must.Succeed(t, wait.Until(t.Context(), time.Minute, "idle Pods in both clusters", func(ctx context.Context) error {
		return shell(ctx, "atollctl create --env python --clusters east --require-clusters --no-queue\n"+
			"atollctl create --env python --clusters west --require-clusters --no-queue")
	}))
	for _, page := range pages {
		t.Run(page.path, func(t *testing.T) {
			script := []string{page.setup}
			for _, commands := range blocks(t, block, page.path) {
				script = append(script, runnable(commands))
			}
			if len(script) == 1 {
				t.Fatal("the page has no commands any more: take it from the list")
			}
			must.Succeed(t, shell(t.Context(), strings.Join(script, "\n")))
		})
	}
}

var (
	// fence is a block with its mark.
	fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```")
	// command is a line that a reader would type.
	command = regexp.MustCompile(`(?m)^(\$|(bin/)?(atollctl|atoll-hub)|kubectl|helm|clusterctl|curl|make|go) `)
	makes   = regexp.MustCompile(`(?m)^make ([a-z0-9-]+)`)
)

// marks are those of blocks that nothing runs. Each of them has no commands.
var marks = []string{"yaml", "json", "ts", "text"}

// Every block with commands is run, or has a reason in notRun; and every block says what it is.
func TestEveryBlockIsRunOrHasAReason(t *testing.T) {
	all, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	must.Succeed(t, err)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must.Succeed(t, err)
	run := map[string]bool{"docs/quickstart.md": true}
	for _, page := range pages {
		run[page.path] = true
	}
	needed := map[int]bool{}
	for _, path := range append(all, "README.md") {
		page := strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(root)+"/")
		text, err := os.ReadFile(filepath.Join(root, page))
		must.Succeed(t, err)
		found := fence.FindAllStringSubmatch(string(text), -1)
		if fences := strings.Count(string(text), "```"); fences != 2*len(found) {
			t.Errorf("%s has %d fences and %d blocks: one has no end, or does not begin its line", page, fences, len(found))
		}
		for _, match := range found {
			mark, commands := match[1], match[2]
			begins, _, _ := strings.Cut(commands, "\n")
			if mark == "sh" {
				if !run[page] {
					t.Errorf("%s has commands and no line in pages: %s", page, begins)
				}
				for _, target := range makes.FindAllStringSubmatch(commands, -1) {
					if !strings.Contains(string(makefile), "\n"+target[1]+":") {
						t.Errorf("%s has make %s, and the Makefile has no such target", page, target[1])
					}
				}
				continue
			}
			if slices.Contains(marks, mark) && !command.MatchString(commands) {
				continue
			}
			i := slices.IndexFunc(notRun, func(not exception) bool {
				return not.page == page && strings.HasPrefix(commands, not.begins)
			})
			if i >= 0 {
				needed[i] = true
				continue
			}
			t.Errorf("%s, the block that begins %q: its mark is %q, want sh, which is run, %s without commands, or a reason in notRun",
				page, begins, mark, strings.Join(marks, ", "))
		}
	}
	for i, not := range notRun {
		if !needed[i] {
			t.Errorf("no block of %s begins %q and needs a reason: take it from notRun", not.page, not.begins)
		}
	}
}

// What readers look for in the README has a heading there.
func TestTheREADMEHasItsHeadings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	must.Succeed(t, err)
	for _, heading := range []string{"Add a cluster", "Give a team access", "Write a client"} {
		if !strings.Contains(string(text), "\n## "+heading+"\n") {
			t.Errorf("README.md has no heading %q", heading)
		}
	}
}

// runnable makes commands fit this machine: make is what runs this test, and the address is printed by the demo.
func runnable(commands string) string {
	var out []string
	for line := range strings.Lines(commands) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "make "), strings.HasPrefix(line, "export ATOLL_SERVER="):
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
