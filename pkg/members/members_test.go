// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a replica until the test ends, or stop is called.
func start(t *testing.T, name string, change func(*Options)) (m *Members, stop func()) {
	t.Helper()
	o := Options{Name: name, Bind: "127.0.0.1:0", Peer: ":8444", Version: "test", Log: testlog.New(t)}
	change(&o)
	m, err := Start(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	var over atomic.Bool
	stop = func() {
		if !over.Swap(true) {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return m, stop
}

// see waits until a replica sees so many, itself included.
func (m *Members) see(t *testing.T, n int) {
	t.Helper()
	wait.For(t, patience, "members", func(context.Context) error {
		if got := m.Peers(); len(got) != n {
			return fmt.Errorf("%s sees %v, want %d", m.opts.Name, got, n)
		}
		return nil
	})
}

func TestReplicasFindEachOther(t *testing.T) {
	var load atomic.Int64
	var degraded atomic.Bool
	a, _ := start(t, "a", func(o *Options) { o.Load, o.Degraded = func() int { return int(load.Load()) }, degraded.Load })
	b, _ := start(t, "b", func(o *Options) { o.Join = []string{"unknown.invalid", a.Address()} })
	_, port, err := net.SplitHostPort(b.Address())
	must.Succeed(t, err)
	c, _ := start(t, "c", func(o *Options) { o.Join = []string{"localhost:" + port}; o.Peer = "10.1.2.3:99" })
	for _, m := range []*Members{a, b, c} {
		m.see(t, 3)
	}
	load.Store(7)
	degraded.Store(true)
	want := map[string]Member{
		"a": {Name: "a", Address: "127.0.0.1:8444", Version: "test", Load: 7, Degraded: true},
		"b": {Name: "b", Address: "127.0.0.1:8444", Version: "test"}, "c": {Name: "c", Address: "10.1.2.3:99", Version: "test"},
	}
	wait.For(t, patience, "what the replicas tell", func(context.Context) error {
		for _, m := range c.Peers() {
			if want[m.Name] != m {
				return fmt.Errorf("%+v, want %+v", m, want[m.Name])
			}
		}
		return nil
	})
	select {
	case <-c.Changed():
	default:
		t.Error("a change is not told")
	}
}

func TestAReplicaThatLeavesIsNoMember(t *testing.T) {
	a, _ := start(t, "a", func(*Options) {})
	_, stop := start(t, "b", func(o *Options) { o.Join = []string{a.Address()} })
	a.see(t, 2)
	stop()
	a.see(t, 1)
	_, _ = start(t, "b", func(o *Options) { o.Join = []string{a.Address()} }) // the same name at another address
	a.see(t, 2)
}

func keyOf(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

func keyring(t *testing.T, keys ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keyring")
	must.Succeed(t, os.WriteFile(file, []byte("# gossip\n"+strings.Join(keys, "\n")+"\n"), 0o600))
	return file
}

func TestGossipNeedsAKey(t *testing.T) {
	a, _ := start(t, "a", func(o *Options) { o.KeyringFile = keyring(t, keyOf(1), keyOf(2)) })
	b, _ := start(t, "b", func(o *Options) { o.KeyringFile, o.Join = keyring(t, keyOf(2), keyOf(1)), []string{a.Address()} })
	for name, file := range map[string]string{"without": "", "stranger": keyring(t, keyOf(3))} {
		m, err := Start(Options{Name: name, Bind: "127.0.0.1:0", Peer: ":1", KeyringFile: file, Log: testlog.New(t)})
		must.Succeed(t, err)
		if n, err := m.list.Join([]string{a.Address()}); err == nil || n != 0 {
			t.Errorf("%s: joined %d, %v", name, n, err)
		}
		must.Succeed(t, m.list.Shutdown())
	}
	a.see(t, 2)
	b.see(t, 2)
}

// TestKeysRotate without an interruption: add, use, remove.
func TestKeysRotate(t *testing.T) {
	file := keyring(t, keyOf(1))
	a, _ := start(t, "a", func(o *Options) { o.KeyringFile = file })
	r := a.ring
	write := func(keys ...string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(file, []byte(strings.Join(keys, "\n")), 0o600))
	}
	has := func(primary byte, n int) func(context.Context) error {
		return func(context.Context) error {
			if k := r.keys.GetPrimaryKey(); k[0] != primary || len(r.keys.GetKeys()) != n {
				return fmt.Errorf("primary %d of %d keys, want %d of %d", k[0], len(r.keys.GetKeys()), primary, n)
			}
			return nil
		}
	}
	write(keyOf(1), keyOf(2))
	wait.For(t, patience, "a second key", has(1, 2))
	write(keyOf(2), keyOf(1))
	wait.For(t, patience, "its use", has(2, 2))
	write("no key")
	write(keyOf(2))
	wait.For(t, patience, "the end of the first", has(2, 1))
	for text, want := range map[string]string{
		"": "0 keys, want 1 to 8", "no key": "line 1, want 16, 24 or 32 bytes", strings.Repeat(keyOf(1)+"\n", 9): "9 keys",
	} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := openRing(file, testlog.New(t)); !errors.Is(err, errKeyring) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMetaIsBounded(t *testing.T) {
	at := net.IPv4(10, 0, 0, 1)
	for told, want := range map[string]Member{
		`{"p":":8444","v":"v1","l":3}`:                         {Address: "10.0.0.1:8444", Version: "v1", Load: 3},
		`{"p":"[::]:8444"}`:                                    {Address: "10.0.0.1:8444"},
		`{"p":"hub-0:8444","l":-4}`:                            {Address: "hub-0:8444"},
		`{"p":":8444","v":"` + strings.Repeat("v", 200) + `"}`: {Address: "10.0.0.1:8444", Version: strings.Repeat("v", maxVersion)},
		`{"p":"8444"}`:                                         {},
		`{}`:                                                   {},
		`x`:                                                    {},
		`{"p":":8444","v":"` + strings.Repeat("v", 600) + `"}`:         {},
		`{"p":"` + strings.Repeat("h", maxAddress) + `:8444","v":"v"}`: {},
	} {
		if got, err := read([]byte(told), at); got != want || (err == nil) != (want != Member{}) {
			t.Errorf("%.60s: %+v, %v", told, got, err)
		}
	}
	for name, o := range map[string]Options{
		"name": {Bind: ":0", Peer: ":1"}, "peer address": {Name: "a", Bind: ":0"}, "gossip address": {Name: "a", Bind: "x", Peer: ":1"},
		"keyring": {Name: "a", Bind: ":0", Peer: ":1", KeyringFile: "/nowhere"},
	} {
		o.Log = testlog.New(t)
		if _, err := Start(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
