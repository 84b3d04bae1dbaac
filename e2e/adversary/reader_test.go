// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

// readerRows attack by reading the hub's disk and a backup, while the hub runs. It has an encryption key, which is elsewhere.
func readerRows() []row {
	return []row{
		{name: "hub-disk", role: reader, told: []string{"claims.db: a claim's key", "hub.tar.gz: a claim's key"},
			never: []string{".*in clear.*"}, prepare: hookedClaim, attack: readDisk, check: endHookedClaim},
	}
}

// newEncryptionKey writes the file with the hub's encryption key.
func (w *world) newEncryptionKey(ctx context.Context, bin string) (path string, err error) {
	path = filepath.Join(w.dir, "encryption-keys.yaml")
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "atoll-hub"), "encryption-key", "new", "--name", "k1", "--file",
		path).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("making an encryption key: %w: %s", err, out)
	}
	return path, nil
}

// hookedClaim has a claim wait for its hook, so that the hub keeps the request, and takes a backup.
func hookedClaim(ctx context.Context, w *world, g *ground) error {
	key := fmt.Sprint("hooked-", w.attempts)
	g.KeyHash = keyHash(w.callers[0].team, key)
	g.Secrets = map[string]string{"header": "canary-header-7f3a", "body": "canary-body-91c0", "metadata": "canary-note-2be4"}
	hook := &structpb.Struct{}
	// No server is at a Pod's address on a plane: the hook is tried until the claim's time is over.
	text := fmt.Sprintf(`{"http":{"port":80,"headers":{"Authorization":%q},"body":%q},"timeout":"60s"}`, g.Secrets["header"],
		g.Secrets["body"])
	if err := protojson.Unmarshal([]byte(text), hook); err != nil {
		return err
	}
	go func() {
		_, _ = w.callers[0].sandboxes.CreateSandbox(ctx, &create{
			Namespace: namespace, Env: spareEnv, ClaimKey: key, PostStartHooks: []*structpb.Struct{hook},
			StartupTimeout: durationpb.New(patience), Metadata: map[string]string{"note": g.Secrets["metadata"]},
		})
	}()
	if err := wait.Until(ctx, patience, "the claim to be known", func(ctx context.Context) error {
		_, err := w.callers[0].claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{Namespace: namespace, ClaimKey: key})
		return err
	}); err != nil {
		return err
	}
	backups := filepath.Join(w.dir, "backups")
	g.Disk = []string{w.HubData(), backups}
	return w.backup(ctx, backups)
}

func (w *world) backup(ctx context.Context, dir string) error {
	stream, err := w.admin.BackupHub(ctx, &sandboxv1.BackupHubRequest{})
	if err != nil {
		return fmt.Errorf("backing up: %w", err)
	}
	var archive bytes.Buffer
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("backing up: %w", err)
		}
		archive.Write(chunk.GetData())
	}
	return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "hub.tar.gz"), archive.Bytes(), 0o600))
}

func endHookedClaim(ctx context.Context, w *world, _ *ground) error {
	_, err := w.callers[0].claims.CancelClaim(ctx, &sandboxv1.CancelClaimRequest{Namespace: namespace,
		ClaimKey: fmt.Sprint("hooked-", w.attempts)})
	return err
}

// readDisk reads every file again and again, and tells what it finds.
func readDisk(ctx context.Context, a *attacker) error {
	for ctx.Err() == nil {
		for _, dir := range a.Disk {
			err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				data, err := contents(path)
				if err == nil {
					a.attempts.Add(1)
					a.sent.Add(int64(len(data)))
					a.search(filepath.Base(path), data)
				}
				return err
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("reading %s: %w", dir, err)
			}
		}
	}
	return nil
}

// mostUnzipped is what a backup of a hub under attack may have.
const mostUnzipped = 256 << 20

// contents are a file's, uncompressed.
func contents(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(path, ".gz") {
		return data, err
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(zipped, mostUnzipped+1))
	if len(data) > mostUnzipped {
		return nil, fmt.Errorf("%s has more than %d bytes", path, mostUnzipped)
	}
	return data, err
}

// search tells which texts are in a file, also in base64: requests stand in JSON as bytes.
func (a *attacker) search(file string, data []byte) {
	if bytes.Contains(data, []byte(a.KeyHash)) {
		a.tell(file + ": a claim's key")
	}
	for name, secret := range a.Secrets {
		if bytes.Contains(data, []byte(secret)) || hasBase64(data, secret) {
			a.tell(file + ": in clear: " + name)
		}
	}
}

// hasBase64 reports whether data has a text in base64, at any of three positions of its first byte.
func hasBase64(data []byte, text string) bool {
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + text))
		from := []int{0, 2, 3}[shift]
		if bytes.Contains(data, []byte(encoded[from:len(encoded)-4])) {
			return true
		}
	}
	return false
}
