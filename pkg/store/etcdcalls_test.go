// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
)

// A call returns an error of etcd at once. It is tried again only if a member does not respond.
func TestEtcdCallsThatAreRefused(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	e, err := OpenEtcd(t.Context(), EtcdOptions{Endpoints: server.Endpoints(), Prefix: "/test", Kind: "claims", Schema: 1})
	must.Succeed(t, err)
	defer e.Close()
	var revision uint64
	for range 3 {
		revision, err = e.Commit(t.Context(), Txn{Puts: []Put{{Key: "a"}}})
		must.Succeed(t, err)
	}
	if latest, err := e.latest(t.Context()); err != nil || latest != revision {
		t.Errorf("the latest revision is %d, %v; want %d", latest, err, revision)
	}
	_, err = e.client.Compact(t.Context(), int64(revision))
	must.Succeed(t, err)
	_, err = e.pages(t.Context(), "", "", 1, 1, func(*mvccpb.KeyValue) error { return nil })
	if !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading a compacted revision: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if last, changed, err := e.Reseal(ctx, ""); last != "" || changed != 0 || err != nil { // a call would fail
		t.Errorf("encrypting a store without a key: %d entries up to %q, %v", changed, last, err)
	}
}
