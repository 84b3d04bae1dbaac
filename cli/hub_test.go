// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
)

// hubServer is a hub with the given archive.
type hubServer struct {
	sandboxv1.UnimplementedHubServer
	archive    []byte
	encryption *sandboxv1.Encryption
}

func (h *hubServer) GetHub(context.Context, *sandboxv1.GetHubRequest) (*sandboxv1.HubStatus, error) {
	return &sandboxv1.HubStatus{Version: "v1", Encryption: h.encryption}, nil
}

// TestHubShowsHowFarTheEncryptionIs, in the table and for programs.
func TestHubShowsHowFarTheEncryptionIs(t *testing.T) {
	for want, e := range map[string]*sandboxv1.Encryption{
		"no": nil, "k2 (1204 of 1300)": {Key: "k2", Sealed: 1204, Stale: 96}, "k2": {Key: "k2", Sealed: 1300},
	} {
		address := serveHub(t, &hubServer{encryption: e})
		out := succeed(t, "hub", "--server", address)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if !strings.Contains(lines[0], "ENCRYPTED") || !strings.HasSuffix(strings.TrimSpace(lines[len(lines)-1]), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
		out = succeed(t, "hub", "--server", address, "-o", "json")
		if strings.Contains(out, `"encryption"`) != (e != nil) || e.GetStale() > 0 && !strings.Contains(out, `"96"`) {
			t.Errorf("as JSON: %s", out)
		}
	}
}

func (h *hubServer) BackupHub(_ *sandboxv1.BackupHubRequest, stream grpc.ServerStreamingServer[sandboxv1.BackupChunk]) error {
	for data := h.archive; len(data) > 0; data = data[min(100, len(data)):] {
		if err := stream.Send(&sandboxv1.BackupChunk{Data: data[:min(100, len(data))]}); err != nil {
			return err
		}
	}
	return nil
}

// archive is that of an empty hub.
func archive(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	claims, err1 := hubstate.Open(dir, hubstate.Claims)
	registry, err2 := hubstate.Open(dir, hubstate.Registry)
	must.Succeed(t, errors.Join(err1, err2))
	var out bytes.Buffer
	err := hubstate.Files{Claims: claims, Registry: registry, Dir: dir, Version: "v1"}.Backup(t.Context(), time.Unix(0, 0), &out)
	must.Succeed(t, errors.Join(err, claims.Close(), registry.Close()))
	return out.Bytes()
}

func serveHub(t *testing.T, h *hubServer) string {
	t.Helper()
	return serving(t, func(s *grpc.Server) { sandboxv1.RegisterHubServer(s, h) })
}

func TestABackupIsAFileOnlyWhenItIsWhole(t *testing.T) {
	h := &hubServer{archive: archive(t)}
	address, dir := serveHub(t, h), t.TempDir()
	path := filepath.Join(dir, "hub.tar.gz")
	out, err := atollctl(t, "hub", "backup", path, "--server", address)
	if err != nil || !strings.Contains(out, "backed up to "+path+": hub v1") {
		t.Errorf("%q: %v", out, err)
	}
	before, err := os.Stat(path)
	must.Succeed(t, err)
	if _, err := atollctl(t, "hub", "backup", path, "--server", address); exitCodeOf(err) != exitUsage || !strings.Contains(err.Error(),
		"--force replaces it") {
		t.Errorf("over another backup: %v", err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the first backup was replaced: %v", err)
	}
	if _, err := atollctl(t, "hub", "backup", path, "--force", "--server", address); err != nil {
		t.Errorf("with --force: %v", err)
	}
	h.archive = h.archive[:len(h.archive)-20]
	if _, err := atollctl(t, "hub", "backup", path+"2", "--server", address); !errors.Is(err, hubstate.ErrArchive) {
		t.Errorf("one that is cut off: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left %v: %v", left, err)
	}
	if _, err := atollctl(t, "hub", "restore", path, "--data-dir", filepath.Join(dir, "data")); err != nil {
		t.Error(err)
	}
	_, err = atollctl(t, "hub", "restore", path, "--data-dir", filepath.Join(dir, "data"))
	if !errors.Is(err, hubstate.ErrExists) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("over another: %v", err)
	}
	claims, err := hubstate.Open(filepath.Join(dir, "data"), hubstate.Claims)
	must.Succeed(t, err)
	if ledger, err := hubstate.LoadLedger(t.Context(), claims); err != nil || !ledger.Restored {
		t.Errorf("ledger %+v: %v", ledger, err)
	}
	if err := claims.Close(); err != nil {
		t.Error(err)
	}
}
