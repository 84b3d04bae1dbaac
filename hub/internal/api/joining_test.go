// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/store"
)

// meanwhile is a store where something else happens once, just before the state of the CA is read.
type meanwhile struct {
	store.Store
	do func()
}

func (m *meanwhile) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if do := m.do; do != nil && key == hubstate.AuthorityKey {
		m.do = nil
		do()
	}
	return m.Store.Get(ctx, key)
}

// An invitation that is used after an operator's scope is written, and before the invitations are told, does not undo it.
func TestAScopeHoldsBesideAnInvitationThatIsUsed(t *testing.T) {
	s := &meanwhile{Store: openStore(t, "registry")}
	issuer, err := authority.Open(t.Context(), authority.Options{
		Store: s, Clock: clock.RealClock{}, Log: testlog.New(t), Hosts: []string{"127.0.0.1"},
	})
	must.Succeed(t, err)
	f, err := fleet.New(t.Context(), fleet.Options{Clock: clock.RealClock{}, Registry: fleet.NewRegistry(s)})
	must.Succeed(t, err)
	issuer.Serve(f)
	_, _, refused := f.Connect(fleet.Peer{ClusterID: "east"}, &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	made, err := issuer.Invite(t.Context(), "east", time.Hour, &hubstate.Scope{Namespaces: []string{"invited"}}, "test")
	must.Succeed(t, err)
	key, _, err := link.NewKey()
	must.Succeed(t, err)
	csr, err := link.NewCSR(key, link.Cluster("east"))
	must.Succeed(t, err)

	s.do = func() {
		_, err := issuer.Join(t.Context(), "192.0.2.1:5", &federationv1.JoinRequest{
			Token: made.GetToken(), ClusterId: "east", ClusterUid: "uid", Csr: csr,
		})
		must.Succeed(t, err)
		if got := f.Cluster("east").GetScope().GetNamespaces(); strings.Join(got, ",") != "invited" {
			t.Errorf("the invitation gave %v", got)
		}
	}
	got, err := clusters{fleet: f, authority: issuer}.UpdateCluster(t.Context(), &sandboxv1.UpdateClusterRequest{
		Id: "east", Scope: &sandboxv1.ClusterScope{Namespaces: []string{"set"}},
	})
	must.Succeed(t, err)
	if now := f.Cluster("east").GetScope().GetNamespaces(); s.do != nil || strings.Join(now, ",") != "set" {
		t.Errorf("its scope is %v; the call returned %v", now, got)
	}
}
