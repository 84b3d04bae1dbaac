// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

// onEtcd is a life whose hubs keep everything in an etcd.
func onEtcd(t *testing.T, e *etcdtest.Etcd) *life {
	o := testOptions(t)
	flags := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	o.etcd.Bind(flags)
	must.Succeed(t, flags.Parse([]string{"--etcd-cert-file", e.Files.Cert, "--etcd-key-file", e.Files.Key, "--etcd-ca-file", e.Files.CA}))
	o.store = "etcd:" + strings.Join(e.Endpoints(), ",")
	return lifeOf(t, o)
}

// TestAHubOnEtcd keeps its keys there: the next one has them, and a backup of it is one of any hub.
func TestAHubOnEtcd(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{TLS: true})
	l := onEtcd(t, e)
	l.begin()
	worker := l.granted("k")
	archive := filepath.Join(t.TempDir(), "hub.tar.gz")
	must.Succeed(t, l.backup(archive))
	worker.stop()
	l.stop()

	left, old := filepath.Join(l.options.dataDir, "backup-1"), time.Now().Add(-48*time.Hour)
	must.Succeed(t, errors.Join(os.MkdirAll(left, 0o700), os.Chtimes(left, old, old)))
	l.begin()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what an interrupted backup has left is still there: %v", err)
	}
	status, err := sandboxv1.NewHubClient(l.conn).GetHub(t.Context(), &sandboxv1.GetHubRequest{})
	if err != nil || status.GetRecovering() || !status.GetOpen() || status.GetReason() != "" || status.GetStoreFailure() != "" {
		t.Errorf("after a restart: %v %v", status, err)
	}
	l.knows("after a restart")
	ready := func() string {
		code, text := get(t, "http://"+l.address.health+"/readyz")
		http.DefaultClient.CloseIdleConnections()
		return fmt.Sprint(code, " ", text)
	}
	if got := ready(); got != "200 ok\n" {
		t.Errorf("readyz: %q", got)
	}
	e.Freeze(0)
	wait.For(t, time.Minute, "readyz to say what is refused", func(context.Context) error {
		got := ready()
		return wait.If(strings.HasPrefix(got, "200 ok\nclaims with a key are refused: "), got)
	})
	begin := time.Now()
	if _, err := l.create("other"); problem.FromError(err) == nil || time.Since(begin) > 15*time.Second {
		t.Errorf("a claim with a key without etcd, after %s: %v", time.Since(begin), err)
	}
	e.Thaw(0)
	l.stop()

	dir := filepath.Join(t.TempDir(), "elsewhere")
	_, err = atollHub(t, "restore", archive, "--data-dir", dir)
	must.Succeed(t, err)
	l.options.dataDir, l.options.store = dir, ""
	l.begin()
	l.knows("from the backup")
}

// TestI2AHubMovesToEtcd: the keys move with it, what workers remember of the file is no loss, and a hub that starts on the file that it
// left is behind.
func TestI2AHubMovesToEtcd(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{TLS: true})
	l := newLife(t)
	worker := l.granted("k")
	mark := l.mark()
	worker.stop()
	l.stop()
	next := onEtcd(t, e)
	next.options.tls = l.options.tls
	out, err := atollHub(t, "migrate", "--from=bbolt:"+l.options.dataDir, "--to="+next.options.store, "--etcd-cert-file="+e.Files.Cert,
		"--etcd-key-file="+e.Files.Key, "--etcd-ca-file="+e.Files.CA)
	if must.Succeed(t, err); !strings.Contains(out, "both sides have") {
		t.Errorf("it tells %s", out)
	}
	next.begin()
	if lost := next.remembers(mark); lost {
		t.Error("the move counts as a loss")
	}
	next.knows("after the move")
	_, err = next.hub.claimsStore.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "later"}}})
	must.Succeed(t, err)
	moved := next.mark()
	next.stop()
	l.begin()
	if lost := l.remembers(moved); !lost {
		t.Error("a hub on the file that was left serves keys as if nothing had been")
	}
}

// mark is what workers remember of the running hub's ledger.
func (l *life) mark() *federationv1.LedgerMark {
	return recovery.Marks{State: l.hub.recovery, Clock: clock.RealClock{}, Log: testlog.New(l.T)}.Mark()
}

// remembers tells the running hub a mark, as a worker that attaches does.
func (l *life) remembers(mark *federationv1.LedgerMark) (lost bool) {
	l.Helper()
	lost, err := recovery.Marks{State: l.hub.recovery, Clock: clock.RealClock{}, Log: testlog.New(l.T)}.Remembered(l.Context(), "east", mark)
	must.Succeed(l.T, err)
	return lost
}

// TestStoreFlags: what is wrong is named, and no hub starts.
func TestStoreFlags(t *testing.T) {
	files := []string{"--tls-cert-file=c", "--tls-key-file=k", "--tls-ca-file=a"}
	for args, want := range map[string]string{
		"--store=zookeeper:x":                               `--store: "zookeeper:x" is not valid, want bbolt:DIRECTORY or etcd:`,
		"--store=etcd:etcd:2379":                            `"etcd:2379" is not valid, want https://HOST:PORT`,
		"--store=etcd:http://10.0.0.1:2379":                 "want https, or an address of loopback",
		"--store=bbolt:/d --etcd-cert-file=c":               "has no use for --etcd-cert-file",
		"--store=etcd:https://a:1 --etcd-prefix=a/":         `etcd prefix: "a/" is not valid`,
		"--store=etcd:https://a:1 --registry-copy=file:":    "--registry-copy",
		"--store=etcd:https://a:1 --registry-copy=secret:x": "want none: back up etcd",
		"--store=etcd:https://a:1 --etcd-user-file=/none":   "--etcd-user-file",
	} {
		if _, err := atollHub(t, append(strings.Fields(args), files...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
