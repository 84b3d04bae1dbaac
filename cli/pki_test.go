// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/x509"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// atollctl runs a command, and returns its standard output.
func atollctl(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = command(t.Context(), &out, io.Discard, args...)
	return out.String(), err
}

func issued(t *testing.T, dir string, who link.Identity) *x509.Certificate {
	t.Helper()
	authority, err := pki.Open(dir)
	must.Succeed(t, err)
	cert, err := authority.Issued(who)
	must.Succeed(t, err)
	return cert
}

// words runs a printed command with a kubectl that prints its arguments.
func words(t *testing.T, command string) []string {
	t.Helper()
	sh := exec.Command("sh", "-eu")
	sh.Stdin = strings.NewReader("kubectl() { printf '%s\\n' \"$@\"; }\n" + command)
	out, err := sh.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestPKIPrintsTheSecretsCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a pki")
	succeed(t, "pki", "init", "--dir", dir)
	for _, tc := range []struct {
		args, want []string
		files      string
	}{
		{args: []string{"hub", "--host", "hub.example.org,192.0.2.7"}, files: "hub",
			want: []string{"-n", "atoll-system", "create", "secret", "generic", "atoll-hub-tls"}},
		{args: []string{"cluster", "east", "--context", "kind-east", "--namespace", "other", "--name", "w"}, files: "cluster-east",
			want: []string{"--context", "kind-east", "-n", "other", "create", "secret", "generic", "w-tls"}},
	} {
		want := append(tc.want, "--from-file=tls.crt="+filepath.Join(dir, tc.files+".crt"),
			"--from-file=tls.key="+filepath.Join(dir, tc.files+".key"), "--from-file=ca.crt="+filepath.Join(dir, "ca.crt"))
		got := words(t, succeed(t, append([]string{"pki", "--dir", dir}, tc.args...)...))
		if !slices.Equal(got, want) {
			t.Errorf("%q prints\n%q, want\n%q", tc.args, got, want)
		}
	}
}

func TestPKIIssuesWhatHubAndWorkerTake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	succeed(t, "pki", "init", "--dir", dir)
	succeed(t, "pki", "hub", "--dir", dir, "--host", "hub.example.org,192.0.2.7,2001:db8::7,*.hub.example.org")
	succeed(t, "pki", "cluster", "east", "--dir", dir)
	for file, who := range map[string]link.Identity{"hub": link.Hub(), "cluster-east": link.Cluster("east")} {
		creds, err := link.LoadCredentials(link.Files{
			Cert: filepath.Join(dir, file+".crt"), Key: filepath.Join(dir, file+".key"), CA: filepath.Join(dir, "ca.crt"),
		}, logr.Discard())
		must.Succeed(t, err)
		if got, err := creds.Identity(); err != nil || got != who {
			t.Errorf("%s is %s (%v), want %s", file, got, err, who)
		}
	}
	hub := issued(t, dir, link.Hub())
	for _, name := range []string{
		"hub.example.org", "x.hub.example.org", "192.0.2.7", "[2001:db8::7]", "localhost", "127.0.0.1",
		"atoll-hub.atoll-system.svc", "atoll-hub-link.atoll-system.svc.cluster.local",
	} {
		if err := hub.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

func TestPKIRenewsOnlyWhenTold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	succeed(t, "pki", "init", "--dir", dir)
	succeed(t, "pki", "hub", "--dir", dir, "--host", "192.0.2.7")
	before := issued(t, dir, link.Hub())
	if _, err := atollctl(t, "pki", "hub", "--dir", dir, "--host", "192.0.2.8"); err == nil || !strings.Contains(err.Error(), "--renew") {
		t.Errorf("a second certificate: %v", err)
	}
	if !issued(t, dir, link.Hub()).Equal(before) {
		t.Error("the first certificate was replaced")
	}
	out := succeed(t, "pki", "hub", "--dir", dir, "--renew", "--context", "kind-hub")
	if !strings.Contains(out, " --dry-run=client -o yaml | kubectl --context kind-hub apply --server-side --force-conflicts -f -") {
		t.Errorf("a Secret that may be there is written by: %s", out)
	}
	after := issued(t, dir, link.Hub())
	if after.Equal(before) || after.VerifyHostname("192.0.2.7") != nil {
		t.Errorf("renewed: %v, want another one with the same hosts", after.IPAddresses)
	}
	succeed(t, "pki", "hub", "--dir", dir, "--renew", "--host", "192.0.2.8")
	moved := issued(t, dir, link.Hub())
	if moved.VerifyHostname("192.0.2.8") != nil || moved.VerifyHostname("192.0.2.7") == nil {
		t.Errorf("renewed with another host: %v", moved.IPAddresses)
	}
}

func TestPKIRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	succeed(t, "pki", "init", "--dir", dir)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	must.Succeed(t, err)
	elsewhere := filepath.Join(t.TempDir(), "mistyped")
	for args, want := range map[string]string{
		"pki init --dir " + dir:                           "there is a CA already",
		"pki hub --dir " + elsewhere:                      "atollctl pki init --dir",
		"pki cluster east --dir " + elsewhere:             "atollctl pki init --dir",
		"pki cluster --dir " + dir:                        "takes 1 argument",
		"pki cluster East --dir " + dir:                   "is no cluster id",
		"pki hub --host hub:8443 --dir " + dir:            "without a port",
		"pki hub --host https://hub.example --dir " + dir: "want a DNS name",
	} {
		if _, err := atollctl(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := os.Stat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("a refusal left something behind: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "ca.key")); err != nil || !bytes.Equal(after, ca) {
		t.Errorf("the CA's key has changed (%v)", err)
	}
	left := map[string]fs.FileMode{}
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		must.Succeed(t, err)
		left[entry.Name()] = info.Mode().Perm()
	}
	if len(left) != 2 || left["ca.key"] != 0o600 {
		t.Errorf("in the directory: %v, want the CA alone, its key for its owner", left)
	}
}

// The key goes to the cluster that the command line names, and to no context that is atollctl's.
func TestPKITakesKubectlsContextFromTheCommandLineAlone(t *testing.T) {
	atHome(t)
	dir := filepath.Join(t.TempDir(), "pki")
	succeed(t, "pki", "init", "--dir", dir)
	t.Setenv("ATOLL_CONTEXT", "prod")
	byEnvironment := succeed(t, "pki", "hub", "--dir", dir)
	must.Succeed(t, os.Unsetenv("ATOLL_CONTEXT"))
	file := filepath.Join(t.TempDir(), "flags.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("context: prod\n"), 0o600))
	byFile := succeed(t, "pki", "cluster", "east", "--dir", dir, "--config", file)
	for _, printed := range []string{byEnvironment, byFile} {
		if !strings.HasPrefix(printed, "kubectl -n atoll-system create secret ") {
			t.Errorf("printed %s", printed)
		}
	}
}
