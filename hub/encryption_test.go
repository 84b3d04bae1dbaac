// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/hubstate"
)

const canary = "canary-7f3a"

// atollHub runs a command of the hub's own.
func atollHub(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// keyEntry is a new key's entry of a file of encryption keys.
func keyEntry(t *testing.T, name string) string {
	t.Helper()
	out, err := atollHub(t, "encryption-key", "new", "--name", name)
	must.Succeed(t, err)
	return strings.TrimPrefix(out, "keys:\n")
}

func writeKeyFile(t *testing.T, path string, entries ...string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte("keys:\n"+strings.Join(entries, "")), 0o600))
}

// claimWithCanary claims a sandbox, with the canary in a header and a body of a hook and in metadata.
func (l *life) claimWithCanary(key string) {
	l.Helper()
	hook := &structpb.Struct{}
	text := fmt.Sprintf(`{"http":{"port":80,"headers":{"Authorization":%q},"body":%q}}`, canary, canary)
	must.Succeed(l.T, protojson.Unmarshal([]byte(text), hook))
	_, err := sandboxv1.NewSandboxesClient(l.conn).CreateSandbox(l.Context(), &sandboxv1.CreateSandboxRequest{
		Env: "demo", ClaimKey: key, StartupTimeout: durationpb.New(20 * time.Second), PostStartHooks: []*structpb.Struct{hook},
		Metadata: map[string]string{"note": canary},
	})
	must.Succeed(l.T, err)
}

// tellsDir reports whether a file below a directory holds a text.
func tellsDir(t *testing.T, dir, text string) (tells bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		tells = tells || bytes.Contains(data, []byte(text))
		return err
	})
	must.Succeed(t, err)
	return tells
}

// tellsBase64 reports whether a directory holds the canary in base64, at any of the three positions of its first byte: a record
// holds its request as bytes in JSON.
func tellsBase64(t *testing.T, dir string) bool {
	t.Helper()
	for shift := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + canary))
		from := []int{0, 2, 3}[shift]
		if tellsDir(t, dir, text[from:len(text)-4]) {
			return true
		}
	}
	return false
}

// unpacked is an archive without its compression.
func unpacked(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(f)
	must.Succeed(t, err)
	return must.Read(t, zipped)
}

// What a hub with a key keeps and backs up, and what it logs, tells nothing of a claim. Without a key volume and backup do: the
// check can fail.
func TestWhatAHubKeepsIsEncrypted(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted=%t", encrypted), func(t *testing.T) {
			var mu sync.Mutex
			var logs strings.Builder
			l := lifeOf(t, testOptions(t))
			l.log = funcr.New(func(prefix, args string) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintln(&logs, prefix, args)
			}, funcr.Options{Verbosity: 9})
			if encrypted {
				l.options.encryptionKeys = filepath.Join(t.TempDir(), "keys.yaml")
				writeKeyFile(t, l.options.encryptionKeys, keyEntry(t, "a"))
			}
			l.begin()
			worker := l.attach()
			go func() { worker.grant(<-worker.claims) }()
			l.claimWithCanary("k")
			archive := filepath.Join(t.TempDir(), "hub.tar.gz")
			must.Succeed(t, l.backup(archive))
			worker.stop()
			l.stop()
			backup := t.TempDir()
			must.Succeed(t, os.WriteFile(filepath.Join(backup, "hub.tar"), unpacked(t, archive), 0o600))
			for name, dir := range map[string]string{"volume": l.options.dataDir, "backup": backup} {
				if tells := tellsDir(t, dir, canary) || tellsBase64(t, dir); tells == encrypted {
					t.Errorf("the %s tells what it holds: %t", name, tells)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(logs.String(), canary) {
				t.Errorf("the log tells it: %s", logs.String())
			}
		})
	}
}

// A hub is given a key, changes it while it runs, and is restored: nothing is lost, and only the right key opens it.
func TestEncryptionKeysOfAHub(t *testing.T) {
	l := newLife(t)
	worker := l.attach()
	go func() { worker.grant(<-worker.claims) }()
	l.claimWithCanary("k")
	worker.stop()
	l.stop()

	a, b := keyEntry(t, "a"), keyEntry(t, "b")
	l.options.encryptionKeys = filepath.Join(t.TempDir(), "keys.yaml")
	writeKeyFile(t, l.options.encryptionKeys, a)
	l.begin()
	l.knows("encrypted")
	if tellsBase64(t, l.options.dataDir) {
		t.Error("the volume still tells what was in it before")
	}
	writeKeyFile(t, l.options.encryptionKeys, b, a)
	wait.For(t, 30*time.Second, "the rotation", func(context.Context) error {
		_, metrics := get(t, "http://"+l.address.metrics+"/metrics")
		archive := filepath.Join(t.TempDir(), "hub.tar.gz")
		if err := l.backup(archive); err != nil {
			return err
		}
		for _, file := range []string{"claims", "registry"} {
			if !strings.Contains(metrics, `atoll_hub_store_stale_entries{file="`+file+`"} 0`) {
				return fmt.Errorf("%s has stale entries", file)
			}
		}
		return restoresWith(t, archive, b)
	})
	l.knows("rotated")
	status, err := sandboxv1.NewHubClient(l.conn).GetHub(t.Context(), &sandboxv1.GetHubRequest{})
	if e := status.GetEncryption(); err != nil || e.GetKey() != "b" || e.GetSealed() < 3 || e.GetStale() > 0 {
		t.Errorf("the hub tells of its encryption: %v, %v", e, err)
	}
	archive := filepath.Join(t.TempDir(), "hub.tar.gz")
	must.Succeed(t, l.backup(archive))
	l.stop()

	writeKeyFile(t, l.options.encryptionKeys, b)
	l.begin()
	l.knows("without the old key")
	l.stop()
	for name, c := range map[string]struct {
		keys []string
		want string
	}{"no key": {nil, "it is encrypted; give the file with its keys: --encryption-key-file"},
		"the old key": {[]string{a}, "put that key back"}} {
		o := *l.options
		o.encryptionKeys = ""
		if c.keys != nil {
			o.encryptionKeys = filepath.Join(t.TempDir(), "other.yaml")
			writeKeyFile(t, o.encryptionKeys, c.keys...)
		}
		h := &hub{log: l.log}
		err := h.openStore(t.Context(), clock.RealClock{}, &o)
		for _, file := range []hubstate.Store{h.claimsStore, h.registryStore} {
			if file != nil {
				_ = file.Close()
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a hub with %s: %v", name, err)
		}
		// The same for a restore: it says so, and writes nothing.
		dir := filepath.Join(t.TempDir(), "data")
		args := []string{"restore", archive, "--data-dir", dir}
		if o.encryptionKeys != "" {
			args = append(args, "--encryption-key-file", o.encryptionKeys)
		}
		if _, err := atollHub(t, args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a restore with %s: %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("a restore with %s left %v, %v", name, left, err)
		}
	}
	rewriteAndRead(t, l)
	l.begin()
	l.knows("decrypted")
}

// restoresWith restores an archive with a key into a new directory.
func restoresWith(t *testing.T, archive, entry string) error {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	writeKeyFile(t, keys, entry)
	_, err := atollHub(t, "restore", archive, "--data-dir", filepath.Join(t.TempDir(), "data"), "--encryption-key-file", keys)
	return err
}

// rewriteAndRead rewrites the files of a hub that does not run, with its key and then without.
func rewriteAndRead(t *testing.T, l *life) {
	t.Helper()
	args := []string{"encryption-key", "rewrite", "--data-dir", l.options.dataDir, "--encryption-key-file", l.options.encryptionKeys}
	for _, more := range [][]string{nil, {"--plain"}} {
		if out, err := atollHub(t, append(args, more...)...); err != nil || !strings.Contains(out, "rewrote the files") {
			t.Fatalf("rewrite %v: %q, %v", more, out, err)
		}
		if got := tellsBase64(t, l.options.dataDir); got != (more != nil) {
			t.Errorf("after rewrite %v the volume tells what it holds: %t", more, got)
		}
	}
	l.options.encryptionKeys = ""
}

// The commands of docs/operations.md do what it says, in their order.
func TestTheDocumentedCommandsOfEncryption(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	must.Succeed(t, err)
	_, section, _ := strings.Cut(string(doc), "## Encrypt it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var script string
	for i, part := range strings.Split(section, "```") {
		if commands, ok := strings.CutPrefix(part, "sh\n"); ok && i%2 == 1 {
			script += commands
		}
	}
	if strings.Count(script, "atoll-hub ") < 5 {
		t.Fatalf("the section has the commands:\n%s", script)
	}
	l := newLife(t)
	dir := t.TempDir()
	must.Succeed(t, l.backup(filepath.Join(dir, "hub.tar.gz")))
	l.stop()
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Rename(l.options.dataDir, filepath.Join(dir, "data")), os.Symlink(self, filepath.Join(dir, "atoll-hub")))
	}
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asHub+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "rewrote the files of data") != 2 || !strings.Contains(string(out), "restored to elsewhere") {
		t.Fatalf("%v\n%s", err, out)
	}
	keys, err := envelope.OpenKeyFile(filepath.Join(dir, "keys.yaml"))
	if err != nil || strings.Join(keys.Names(), " ") != "k2 k1" {
		t.Errorf("the rotated file has %q, %v", keys.Names(), err)
	}
	for name, sealer := range map[string]*envelope.Sealer{"data": nil, "elsewhere": envelope.New(keys)} {
		file, err := hubstate.OpenSealed(filepath.Join(dir, name), hubstate.Claims, sealer)
		must.Succeed(t, err)
		must.Succeed(t, file.Close())
	}
}
