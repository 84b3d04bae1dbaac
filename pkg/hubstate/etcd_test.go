// SPDX-License-Identifier: Apache-2.0

package hubstate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// migrate runs the command that both programs have.
func migrate(t *testing.T, args ...string) (string, error) {
	var out bytes.Buffer
	err := migrateInto(t, &out, args...)
	return out.String(), err
}

func migrateInto(t *testing.T, out io.Writer, args ...string) error {
	var f hubstate.MigrateFlags
	flags := pflag.NewFlagSet("migrate", pflag.ContinueOnError)
	f.Bind(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return f.Run(t.Context(), out)
}

// fill writes what a hub keeps, and returns all of it that a migration moves.
func fill(t *testing.T, dir string, n int) {
	claims, registry := open(t, dir, hubstate.Claims), open(t, dir, hubstate.Registry)
	id := hubstate.Identity{ID: "ledger-1", Epoch: 3}
	must.Succeed(t, errors.Join(
		hubstate.SaveLedger(t.Context(), claims, hubstate.Ledger{Identity: id, Former: []string{"ledger-0"}}),
		hubstate.SaveIdentity(t.Context(), registry, id),
		hubstate.SaveMark(t.Context(), registry, hubstate.Mark{ID: id.ID, Revision: 1 << 40}),
		hubstate.SaveRecord(t.Context(), registry, hubstate.Record{ClusterID: "east", UID: "e", Incarnation: 7})))
	var txn store.Txn
	for i := range n {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("claim/%05d", i), Value: bytes.Repeat([]byte{byte(i)}, i%3000)},
			store.Put{Key: fmt.Sprintf("expire/%05d", i)})
	}
	_, err := claims.Commit(t.Context(), txn)
	must.Succeed(t, errors.Join(err, claims.Close(), registry.Close()))
}

// content is everything but the ledger's names.
func content(t *testing.T, p hubstate.Place, sealer *envelope.Sealer) (entries map[string]string, ledger hubstate.Ledger) {
	t.Helper()
	entries = map[string]string{}
	for _, kind := range []hubstate.Kind{hubstate.Claims, hubstate.Registry} {
		s, err := p.Open(t.Context(), kind, sealer)
		must.Succeed(t, err)
		all, err := s.Range(t.Context(), "", "", 0)
		must.Succeed(t, err)
		for _, e := range all {
			if e.Key != hubstate.LedgerKey && e.Key != "ledger-revision" {
				entries[string(kind)+"/"+e.Key] = string(e.Value)
			}
		}
		if kind == hubstate.Claims {
			l, err := hubstate.LoadLedger(t.Context(), s)
			must.Succeed(t, err)
			ledger = *l
		} else {
			id, err := hubstate.LoadIdentity(t.Context(), s)
			mark, err2 := hubstate.LoadMark(t.Context(), s)
			if must.Succeed(t, errors.Join(err, err2)); *id != ledger.Identity {
				t.Errorf("the registry names %v, the ledger is %v", id, ledger)
			}
			if strings.Contains(fmt.Sprint(ledger.Former), "ledger-1") && mark != nil {
				t.Errorf("a mark of the file that it came from: %v", mark)
			}
		}
		must.Succeed(t, s.Close())
	}
	return entries, ledger
}

// TestMigration goes to etcd and back, plain and encrypted: all entries are there, and a hub on the older copy is noticed.
func TestMigration(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{TLS: true})
	keyFile := filepath.Join(t.TempDir(), "keys.yaml")
	key, err := envelope.NewKey("k")
	must.Succeed(t, errors.Join(err, os.WriteFile(keyFile, key, 0o600)))
	for name, keys := range map[string]string{"plain": "", "encrypted": keyFile} {
		t.Run(name, func(t *testing.T) {
			from := hubstate.Place{Dir: t.TempDir()}
			fill(t, from.Dir, 2500)
			want, before := content(t, from, nil)
			flags := []string{"--etcd-cert-file=" + e.Files.Cert, "--etcd-key-file=" + e.Files.Key, "--etcd-ca-file=" + e.Files.CA,
				"--etcd-prefix=/" + name, "--encryption-key-file=" + keys}
			to := "--to=etcd:" + strings.Join(e.Endpoints(), ",")
			sealer, err := envelope.Open(keys)
			must.Succeed(t, err)
			place := hubstate.Place{Etcd: &store.EtcdOptions{Endpoints: e.Endpoints(), CertFile: e.Files.Cert, KeyFile: e.Files.Key,
				CAFile: e.Files.CA, Prefix: "/" + name}}

			// What an interrupted migration leaves is not opened, and the next one makes it right.
			o := *place.Etcd
			o.Kind, o.Schema, o.Sealer, o.Migrating = "claims", 2, sealer, true
			half, err := store.OpenEtcd(t.Context(), o)
			must.Succeed(t, err)
			_, err = half.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "claim/00007", Value: []byte("old")}, {Key: "claim/x"}}})
			must.Succeed(t, errors.Join(err, half.Close()))
			if _, err := place.Open(t.Context(), hubstate.Claims, sealer); !errors.Is(err, store.ErrMigrating) {
				t.Errorf("an unfinished one: %v", err)
			}
			running := open(t, from.Dir, hubstate.Claims)
			if _, err := migrate(t, append(flags, to, "--from=bbolt:"+from.Dir)...); !errors.Is(err, hubstate.ErrRuns) {
				t.Errorf("under a hub: %v", err)
			}
			must.Succeed(t, running.Close())

			out, err := migrate(t, append(flags, to, "--from=bbolt:"+from.Dir)...)
			if must.Succeed(t, err); !strings.Contains(out, "claims: 5001 entries, both sides have sha256") {
				t.Errorf("it tells %s", out)
			}
			got, ledger := content(t, place, sealer)
			if !maps.Equal(want, got) || ledger.ID == before.ID || ledger.Epoch != 3 || fmt.Sprint(ledger.Former) != "[ledger-0 ledger-1]" {
				t.Errorf("%d entries, want %d; ledger %+v", len(got), len(want), ledger)
			}
			if again, unchanged := content(t, from, nil); !maps.Equal(want, again) || unchanged.ID != before.ID {
				t.Error("the source was changed")
			}
			if _, err := migrate(t, append(flags, to, "--from=bbolt:"+from.Dir)...); err == nil || !strings.Contains(err.Error(), "already") {
				t.Errorf("into a store: %v", err)
			}

			back := hubstate.Place{Dir: filepath.Join(t.TempDir(), "back")}
			_, err = migrate(t, append(flags, "--from="+to[len("--to="):], "--to=bbolt:"+back.Dir)...)
			must.Succeed(t, err)
			got, ledger = content(t, back, sealer)
			if !maps.Equal(want, got) || len(ledger.Former) != 3 {
				t.Errorf("back: %d entries, want %d; ledger %+v", len(got), len(want), ledger)
			}
			if left, err := filepath.Glob(filepath.Join(back.Dir, "*")); err != nil || len(left) != 2 {
				t.Errorf("left %v, %v", left, err)
			}
			if _, err = migrate(t, append(flags, "--from="+to[len("--to="):], "--to=bbolt:"+back.Dir)...); !errors.Is(err, hubstate.ErrExists) {
				t.Errorf("over files: %v", err)
			}
		})
	}
	flags := []string{"--etcd-cert-file=" + e.Files.Cert, "--etcd-key-file=" + e.Files.Key, "--etcd-ca-file=" + e.Files.CA}
	etcd := "etcd:" + strings.Join(e.Endpoints(), ",")
	for name, args := range map[string][]string{
		"there is no store of a hub": {"--from=bbolt:" + t.TempDir(), "--to=" + etcd},
		"there is no store":          {"--from=" + etcd, "--to=bbolt:" + t.TempDir(), "--etcd-prefix=/none"},
		"must be bbolt":              {"--from=" + etcd, "--to=" + etcd},
		`--to: "" is not valid`:      {"--from=" + etcd},
	} {
		if _, err := migrate(t, append(flags, args...)...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMigrationOnline begins under hubs that write, and ends when they have stopped: what they wrote last is there.
func TestMigrationOnline(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	etcd := "etcd:" + strings.Join(e.Endpoints(), ",")
	files := hubstate.Place{Dir: t.TempDir()}
	fill(t, files.Dir, 1500)
	place := hubstate.Place{Etcd: &store.EtcdOptions{Endpoints: e.Endpoints(), Prefix: "/atoll"}}
	back := hubstate.Place{Dir: t.TempDir()}
	fill(t, back.Dir, 3) // a store from before, which is set aside
	for _, move := range []struct {
		from, to hubstate.Place
		args     []string
	}{
		{files, place, []string{"--from=bbolt:" + files.Dir, "--to=" + etcd, "--online"}},
		{place, back, []string{"--from=" + etcd, "--to=bbolt:" + back.Dir, "--online", "--force"}},
	} {
		claims, err := move.from.Open(t.Context(), hubstate.Claims, nil)
		must.Succeed(t, err)
		registry, err := move.from.Open(t.Context(), hubstate.Registry, nil)
		must.Succeed(t, err)
		held, leave := context.WithCancel(t.Context())
		var reached uint64
		var hub sync.WaitGroup
		if shared, is := claims.(store.Shared); is {
			holds := make(chan struct{})
			hub.Go(func() {
				_ = shared.Lead(held, "sweep", func(ctx context.Context) { close(holds); <-ctx.Done() })
			})
			<-holds
		}
		copied := make(chan struct{}, 1)
		var ended error
		var out lines
		out.saw = func(line string) {
			if strings.HasPrefix(line, "copied") {
				select {
				case copied <- struct{}{}:
				default:
				}
			}
		}
		var run sync.WaitGroup
		run.Go(func() { ended = migrateInto(t, &out, move.args...) })
		<-copied
		_, err = claims.Commit(t.Context(), store.Txn{
			Puts:    []store.Put{{Key: "claim/00001", Value: []byte("last")}, {Key: "claim/late", Value: []byte("later")}},
			Deletes: []string{"claim/00002"},
		})
		must.Succeed(t, err)
		if shared, is := claims.(*store.Etcd); is {
			reached = shared.Committed().Revision
		} else {
			reached, err = claims.(*store.Bolt).Revision()
			must.Succeed(t, err)
		}
		leave()
		hub.Wait()
		must.Succeed(t, errors.Join(claims.Close(), registry.Close()))
		run.Wait()
		must.Succeed(t, ended)
		want, before := content(t, move.from, nil)
		got, ledger := content(t, move.to, nil)
		if !maps.Equal(want, got) || got["claims/claim/late"] != "later" || ledger.ID == before.ID ||
			ledger.Moved == nil || ledger.Moved.ID != before.ID || ledger.Moved.Revision < reached {
			t.Errorf("%v: %d entries, want %d; ledger %+v", move.args, len(got), len(want), ledger)
		}
		for _, dir := range []string{files.Dir, back.Dir} {
			if left, err := filepath.Glob(filepath.Join(dir, "migrate-*")); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		}
	}
	if kept, err := filepath.Glob(filepath.Join(back.Dir, "*.before-restore")); err != nil || len(kept) != 2 {
		t.Errorf("kept of the store before: %v, %v", kept, err)
	}
}

// lines calls saw with what is written.
type lines struct{ saw func(string) }

func (l *lines) Write(p []byte) (int, error) {
	l.saw(string(p))
	return len(p), nil
}
