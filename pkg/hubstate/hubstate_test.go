// SPDX-License-Identifier: Apache-2.0

package hubstate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

func open(t *testing.T, dir string, kind hubstate.Kind) *store.Bolt {
	t.Helper()
	s, err := hubstate.Open(dir, kind)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// golden is a directory with files of a build from before migrations existed.
func golden(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, kind := range []hubstate.Kind{hubstate.Claims, hubstate.Registry} {
		packed, err := os.Open(filepath.Join("testdata", string(kind)+"-v1.db.gz"))
		must.Succeed(t, err)
		zipped, err := gzip.NewReader(packed)
		must.Succeed(t, err)
		data, err := io.ReadAll(zipped)
		must.Succeed(t, errors.Join(err, packed.Close(), os.WriteFile(kind.Path(dir), data, 0o600)))
	}
	return dir
}

func keys(t *testing.T, s store.Store) []string {
	t.Helper()
	entries, err := s.Range(t.Context(), "", "", 0)
	must.Succeed(t, err)
	var out []string
	for _, e := range entries {
		kind, _, _ := strings.Cut(e.Key, "/")
		out = append(out, kind)
	}
	return slices.Compact(out)
}

// TestFilesOfTheFirstSchemaAreMigrated: nothing is lost, and the two belong together.
func TestFilesOfTheFirstSchemaAreMigrated(t *testing.T) {
	dir := golden(t)
	claims, registry := open(t, dir, hubstate.Claims), open(t, dir, hubstate.Registry)
	if got := strings.Join(keys(t, claims), " "); got != "claim expire id ledger" || claims.Schema() != 2 {
		t.Errorf("schema %d with %s", claims.Schema(), got)
	}
	if got := strings.Join(keys(t, registry), " "); got != "cluster ledger" || registry.Schema() != 2 {
		t.Errorf("schema %d with %s", registry.Schema(), got)
	}
	ledger, err1 := hubstate.LoadLedger(t.Context(), claims)
	identity, err2 := hubstate.LoadIdentity(t.Context(), registry)
	if err := errors.Join(err1, err2); err != nil || ledger.Identity != *identity || ledger.Restored || ledger.Recovery != nil {
		t.Errorf("ledger %+v, registry %+v, %v", ledger, identity, err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for kind, want := range map[hubstate.Kind]string{hubstate.Claims: "learns the claim keys", hubstate.Registry: "register anew"} {
		dir := t.TempDir()
		must.Succeed(t, os.WriteFile(kind.Path(dir), []byte("no database"), 0o600))
		_, err := hubstate.Open(dir, kind)
		if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "restore a backup") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// backup is an archive of a directory's files.
func backup(t *testing.T, dir string) []byte {
	t.Helper()
	files := hubstate.Files{Claims: open(t, dir, hubstate.Claims), Registry: open(t, dir, hubstate.Registry), Dir: dir, Version: "v9"}
	var archive bytes.Buffer
	err := files.Backup(t.Context(), time.Unix(1_800_000_000, 0), &archive)
	must.Succeed(t, errors.Join(err, files.Claims.Close(), files.Registry.Close()))
	if left, _ := filepath.Glob(filepath.Join(dir, "backup-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return archive.Bytes()
}

func TestABackupIsRestored(t *testing.T) {
	archive := backup(t, golden(t))
	manifest, err := hubstate.Inspect(bytes.NewReader(archive))
	if err != nil || manifest.Version != "v9" || len(manifest.Files) != 2 || manifest.Files[0].Schema != 2 {
		t.Fatalf("manifest %+v: %v", manifest, err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	_, err = hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, false, nil)
	must.Succeed(t, err)
	claims := open(t, dir, hubstate.Claims)
	if got := strings.Join(keys(t, claims), " "); got != "claim expire id ledger" {
		t.Errorf("restored: %s", got)
	}
	if ledger, err := hubstate.LoadLedger(t.Context(), claims); err != nil || !ledger.Restored {
		t.Errorf("ledger %+v: %v", ledger, err)
	}

	_, err = hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, false, nil)
	if !errors.Is(err, hubstate.ErrExists) {
		t.Errorf("over files that are there: %v", err)
	}
	_, err = hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, true, nil)
	if !errors.Is(err, store.ErrLocked) {
		t.Errorf("under an open hub: %v", err)
	}
	must.Succeed(t, claims.Close())
	if _, err := hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, true, nil); err != nil {
		t.Errorf("by force: %v", err)
	}
	_, err = os.Stat(filepath.Join(dir, "claims.db.before-restore"))
	must.Succeed(t, err)
}

// TestASecondRestoreKeepsWhatTheFirstKept: after one of the wrong archive, what the hub had is still there.
func TestASecondRestoreKeepsWhatTheFirstKept(t *testing.T) {
	archive, dir := backup(t, golden(t)), t.TempDir()
	must.Succeed(t, open(t, dir, hubstate.Claims).Close())
	had, err := os.ReadFile(hubstate.Claims.Path(dir))
	must.Succeed(t, err)
	for range 2 {
		_, err := hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, true, nil)
		must.Succeed(t, err)
	}
	if kept, err := os.ReadFile(hubstate.Claims.Path(dir) + ".before-restore"); err != nil || !bytes.Equal(kept, had) {
		t.Errorf("%v: %d bytes are kept, which are not the %d that were there first", err, len(kept), len(had))
	}
	if all, err := filepath.Glob(filepath.Join(dir, "claims.db*.before-restore")); err != nil || len(all) != 2 {
		t.Errorf("kept: %v, %v", all, err)
	}
}

// TestI2I4ARestoreForgetsNoClusterThatRegisteredSince, and admits none that was forgotten since.
func TestI2I4ARestoreForgetsNoClusterThatRegisteredSince(t *testing.T) {
	dir := t.TempDir()
	write := func(identity hubstate.Identity, records ...hubstate.Record) {
		registry := open(t, dir, hubstate.Registry)
		err := hubstate.SaveIdentity(t.Context(), registry, identity)
		for _, r := range records {
			err = errors.Join(err, hubstate.SaveRecord(t.Context(), registry, r))
		}
		must.Succeed(t, errors.Join(err, registry.Close()))
	}
	restore := func(archive []byte) (hubstate.Restored, string) {
		out, err := hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, true, nil)
		must.Succeed(t, err)
		registry := open(t, dir, hubstate.Registry)
		defer registry.Close()
		identity, err1 := hubstate.LoadIdentity(t.Context(), registry)
		records, err2 := hubstate.LoadRecords(t.Context(), registry)
		must.Succeed(t, errors.Join(err1, err2))
		text := fmt.Sprint(identity.ID, identity.Epoch)
		for _, r := range records {
			text += fmt.Sprintf(" %s=%s-%d", r.ClusterID, r.UID, len(r.Forgotten))
		}
		return out, text
	}
	write(hubstate.Identity{ID: "a"}, hubstate.Record{ClusterID: "east", UID: "e"}, hubstate.Record{ClusterID: "west", UID: "w"})
	archive := backup(t, dir)
	if out, got := restore(archive); got != "a0 east=e-0 west=w-0" || !strings.HasPrefix(out.Clusters(), "The clusters are the backup's. ") {
		t.Errorf("%s: %s", got, out.Clusters())
	}
	write(hubstate.Identity{ID: "b", Epoch: 1}, hubstate.Record{ClusterID: "north", UID: "n"},
		hubstate.Record{ClusterID: "west", Forgotten: []hubstate.Forgotten{{UID: "w"}}})
	out, got := restore(archive)
	if got != "b1 east=e-0 north=n-0 west=-1" || !strings.Contains(out.Clusters(), "since: north; forgotten since: west.") {
		t.Errorf("%s: %s", got, out.Clusters())
	}
	must.Succeed(t, os.WriteFile(hubstate.Registry.Path(dir), []byte("no database"), 0o600))
	if out, got = restore(archive); got != "a0 east=e-0 west=w-0" || !strings.Contains(out.Clusters(), "cannot be read") {
		t.Errorf("%s: %s", got, out.Clusters())
	}
}

// A restore keeps the API keys and the policy that are there: what was revoked since the backup stays revoked.
func TestARestoreBringsNoRevokedKeyBack(t *testing.T) {
	dir := t.TempDir()
	write := func(txn store.Txn) {
		registry := open(t, dir, hubstate.Registry)
		_, err := registry.Commit(t.Context(), txn)
		must.Succeed(t, errors.Join(err, registry.Close()))
	}
	write(store.Txn{Puts: []store.Put{{Key: "access/key/ci", Value: []byte("{}")}, {Key: "access/policy", Value: []byte("{}")},
		{Key: hubstate.CatalogueKey, Value: []byte("one")}}})
	archive := backup(t, dir)
	write(store.Txn{Deletes: []string{"access/key/ci"}, Puts: []store.Put{{Key: "access/key/new", Value: []byte("{}")}}})
	out, err := hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, true, nil)
	must.Succeed(t, err)
	if !strings.Contains(out.Clusters(), "are those that were there") {
		t.Errorf("the result does not say whose keys there are: %s", out.Clusters())
	}
	registry := open(t, dir, hubstate.Registry)
	defer registry.Close()
	entries, err := registry.Range(t.Context(), "access/", "", 0)
	must.Succeed(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Key)
	}
	if want := "access/key/new access/policy"; strings.Join(got, " ") != want {
		t.Errorf("after a restore there are %s, want %s", got, want)
	}
}

// A registry that was begun after a loss keeps its clusters alone: catalogue, keys, allotments and CA are the backup's.
func TestARestoreOverARegistryThatWasBegunAnew(t *testing.T) {
	dir := t.TempDir()
	write := func(cluster, ca string, entries ...string) {
		registry := open(t, dir, hubstate.Registry)
		err := errors.Join(
			hubstate.SaveRecord(t.Context(), registry, hubstate.Record{ClusterID: cluster, UID: cluster}),
			hubstate.SaveAuthority(t.Context(), registry, hubstate.Authority{
				Generation: 1, CAs: []hubstate.CA{{Cert: []byte(ca)}}, Invitations: []hubstate.Invitation{{ID: ca}},
			}),
		)
		var txn store.Txn
		for _, e := range entries {
			key, value, _ := strings.Cut(e, "=")
			txn.Puts = append(txn.Puts, store.Put{Key: key, Value: []byte(value)})
		}
		_, committed := registry.Commit(t.Context(), txn)
		must.Succeed(t, errors.Join(err, committed, registry.Close()))
	}
	write("east", "old", "access/key/ci=old", "access/policy=old", "allotments/epoch=7", "catalog/id=one", "catalog/o/env=old")
	archive := backup(t, dir)
	must.Succeed(t, errors.Join(os.Remove(hubstate.Claims.Path(dir)), os.Remove(hubstate.Registry.Path(dir))))
	write("north", "new", "access/key/bootstrap=new", "access/policy=new", "catalog/c/north=new", "catalog/id=two")
	out, err := hubstate.Restore(t.Context(), bytes.NewReader(archive), dir, true, nil)
	must.Succeed(t, err)
	registry := open(t, dir, hubstate.Registry)
	entries, err := registry.Range(t.Context(), "", "", 0)
	must.Succeed(t, err)
	var got []string
	for _, e := range entries {
		if strings.HasPrefix(e.Key, hubstate.RecordPrefix) || e.Key == hubstate.AuthorityKey {
			e.Value = nil
		}
		got = append(got, e.Key+"="+string(e.Value))
	}
	want := "access/key/ci=old access/policy=old allotments/epoch=7 authority= catalog/id=one catalog/o/env=old cluster/east= cluster/north="
	if strings.Join(got, " ") != want {
		t.Errorf("after a restore there are %s, want %s", got, want)
	}
	authority, _, err := hubstate.LoadAuthority(t.Context(), registry)
	if err != nil || string(authority.CAs[0].Cert) != "old" || len(authority.Invitations) > 0 {
		t.Errorf("the CA is %+v: %v", authority, err)
	}
	if text := out.Clusters(); !strings.Contains(text, "since: north") || !strings.Contains(text, "are the backup's, because") {
		t.Errorf("the result says %s", text)
	}
}

// TestADamagedArchiveChangesNothing cuts an archive off at every kibibyte, and flips a bit in every one.
func TestADamagedArchiveChangesNothing(t *testing.T) {
	archive := backup(t, golden(t))
	dir := filepath.Join(t.TempDir(), "data")
	refused := func(what string, data []byte) {
		if _, err := hubstate.Restore(context.Background(), bytes.NewReader(data), dir, false, nil); err == nil {
			t.Fatalf("%s: restored", what)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Fatalf("%s: left %v", what, left)
		}
	}
	for at := 0; at < len(archive); at += 256 {
		refused("cut off", archive[:at])
		flipped := bytes.Clone(archive)
		flipped[at] ^= 0x10
		if !bytes.Equal(unzip(flipped), unzip(archive)) { // not every bit of a compressed archive matters
			refused(fmt.Sprintf("with a flipped bit at %d of %d", at, len(archive)), flipped)
		}
	}
	refused("nothing at all", nil)
}

// unzip is nil for what cannot be unpacked.
func unzip(data []byte) []byte {
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	out, err := io.ReadAll(zipped)
	if err != nil {
		return nil
	}
	return out
}

// Where other processes may make backups, only what no backup is made from any more is removed, at a start and by the next backup.
func TestTidyBackupsRemovesWhatIsAbandoned(t *testing.T) {
	dir, now := golden(t), time.Now()
	for name, age := range map[string]time.Duration{
		"backup-1": 25 * time.Hour, "backup-2": time.Hour, "backup-of-mine": 48 * time.Hour, "restore-3": 48 * time.Hour,
	} {
		path, at := filepath.Join(dir, name), now.Add(-age)
		must.Succeed(t, errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(filepath.Join(path, "claims.db"), nil, 0o600),
			os.Chtimes(path, at, at)))
	}
	left := func() string {
		all, err := filepath.Glob(filepath.Join(dir, "*-*"))
		must.Succeed(t, err)
		for i := range all {
			all[i] = filepath.Base(all[i])
		}
		return strings.Join(all, " ")
	}
	must.Succeed(t, hubstate.TidyBackups(dir, now))
	if got := left(); got != "backup-2 backup-of-mine restore-3" {
		t.Errorf("left: %s", got)
	}
	files := hubstate.Files{Claims: open(t, dir, hubstate.Claims), Registry: open(t, dir, hubstate.Registry), Dir: dir}
	must.Succeed(t, files.Backup(t.Context(), now.Add(48*time.Hour), io.Discard))
	if got := left(); got != "backup-of-mine restore-3" {
		t.Errorf("after a backup two days later: %s", got)
	}
}

func TestTidyRemovesWhatWasInterrupted(t *testing.T) {
	dir := golden(t)
	must.Succeed(t, os.MkdirAll(filepath.Join(dir, "backup-1"), 0o700))
	must.Succeed(t, hubstate.Tidy(dir))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left %v: %v", left, err)
	}
}
