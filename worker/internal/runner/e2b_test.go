// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"

	"navix.sh/atoll/pkg/e2b"
)

func TestFlagsForE2BClients(t *testing.T) {
	guarded := accessOptions{auth: authKubernetes, cert: "tls.crt", key: "tls.key"}
	for _, row := range []struct {
		listen  listenOptions
		history historyOptions
		says    string // empty: valid
	}{
		{listenOptions{}, historyOptions{}, ""},
		{listenOptions{e2b: e2b.Flags{Listen: "127.0.0.1:8083", KeyFile: "key"}}, historyOptions{}, ""},
		{listenOptions{e2b: e2b.Flags{Listen: "127.0.0.1:8083"}}, historyOptions{dir: "data"}, ""},
		{listenOptions{e2b: e2b.Flags{Listen: "127.0.0.1:8083"}}, historyOptions{}, "--data-dir"},
		{listenOptions{e2b: e2b.Flags{Listen: "127.0.0.1:8083"}}, historyOptions{dir: "data", peerListen: ":1"}, "--e2b-key-file"},
		{listenOptions{e2b: e2b.Flags{Listen: ":8083", KeyFile: "key"}}, historyOptions{}, "--local-tls-cert-file"},
		{listenOptions{e2b: e2b.Flags{Listen: ":8083", KeyFile: "key"}, access: guarded}, historyOptions{}, ""},
	} {
		err := (&Options{listen: row.listen, history: row.history}).validateE2B()
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v %+v: %v, want %q", row.listen.e2b, row.history, err, row.says)
		}
	}
}

// What a sandbox's daemon takes of a local claim needs a key that outlives the process, and that all replicas have.
func TestTheKeyOfDaemons(t *testing.T) {
	for _, row := range []struct {
		flags  e2b.Flags
		dir    string
		shared bool
		ok     bool
	}{
		{e2b.Flags{}, "", false, false},
		{e2b.Flags{}, t.TempDir(), true, false},
		{e2b.Flags{}, t.TempDir(), false, true},
	} {
		key := row.flags.DaemonKey(row.dir, row.shared)
		first, err := key()
		if (err == nil) != row.ok || row.ok && len(first) != e2b.KeySize {
			t.Errorf("%+v: %d bytes, %v", row, len(first), err)
		}
		if !row.ok {
			continue // without a directory the gateway's key would be made in the working directory
		}
		if gateway, err := row.flags.Key(row.dir); err != nil || string(gateway) != string(first) {
			t.Errorf("the gateway has another key: %v", err)
		}
	}
}
