// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
)

func TestEtcdOptions(t *testing.T) {
	for name, change := range map[string]func(o *store.EtcdOptions){
		`""`:                     func(o *store.EtcdOptions) { o.Endpoints = nil },
		"want https":             func(o *store.EtcdOptions) { o.Endpoints = []string{"http://etcd:2379"} },
		`"etcd:2379"`:            func(o *store.EtcdOptions) { o.Endpoints = []string{"etcd:2379"} },
		"either":                 func(o *store.EtcdOptions) { o.Endpoints = []string{"https://etcd:2379", "http://127.0.0.1:2379"} },
		"HOST:PORT":              func(o *store.EtcdOptions) { o.Endpoints = []string{"https://etcd"} },
		"both the cert":          func(o *store.EtcdOptions) { o.CertFile = "c" },
		"name and a pas":         func(o *store.EtcdOptions) { o.Username = "u" },
		`"atoll"`:                func(o *store.EtcdOptions) { o.Prefix = "atoll" },
		"need https":             func(o *store.EtcdOptions) { o.Endpoints, o.CAFile = []string{"http://localhost:2379"}, "ca" },
		`"http://10.0.0.1:2379"`: func(o *store.EtcdOptions) { o.Endpoints = []string{"http://10.0.0.1:2379"} },
		`"https://etcd:port"`:    func(o *store.EtcdOptions) { o.Endpoints = []string{"https://etcd:port"} },
		"1 to 128 bytes":         func(o *store.EtcdOptions) { o.Prefix = "/" + strings.Repeat("x", 128) },
	} {
		o := store.EtcdOptions{Endpoints: []string{"https://etcd:2379"}, Prefix: "/atoll", Kind: "claims"}
		must.Succeed(t, o.Validate())
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := store.EtcdOptions{Endpoints: []string{"https://etcd:2379"}, Prefix: "/" + strings.Repeat("x", 127), Kind: "claims"}
	must.Succeed(t, longest.Validate())
}
