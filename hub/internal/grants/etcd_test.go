// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// Replicas on an etcd know a key, its revocation and a change of the policy within two seconds of the write. The largest policy that is
// valid fits into a transaction.
func TestReplicasOnEtcdHearAtOnce(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	place := hubstate.Place{Etcd: &store.EtcdOptions{Endpoints: e.Endpoints(), Prefix: "/atoll"}}
	var replicas []*Service
	for range 2 {
		s, err := place.Open(t.Context(), hubstate.Registry, nil)
		must.Succeed(t, err)
		t.Cleanup(func() { must.Succeed(t, s.Close()) })
		one, _ := replica(t, s, func(o *Options) { o.Clock = clock.RealClock{} })
		run(t, one)
		replicas = append(replicas, one)
	}
	key, err := KeysAPI{Service: replicas[0]}.CreateKey(t.Context(), &sandboxv1.CreateKeyRequest{Name: "ci"})
	must.Succeed(t, err)
	within := func(what string, try func(context.Context) error) {
		t.Helper()
		began := time.Now()
		wait.For(t, 20*time.Second, what, try)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %s", what, took)
		}
	}
	within("the other replica to know the key", func(ctx context.Context) error {
		_, err := replicas[1].Authenticate(ctx, key.GetToken())
		return err
	})
	policy := &sandboxv1.AccessPolicy{}
	for i := range 900 {
		b := &sandboxv1.RoleBinding{Name: fmt.Sprint("b-", i), Role: access.Viewer, Namespaces: []string{"n"}}
		for j := range 2 {
			b.Subjects = append(b.Subjects, &sandboxv1.Subject{Kind: access.SubjectUser, Name: strings.Repeat("u", 500) + fmt.Sprint(j)})
		}
		policy.Bindings = append(policy.Bindings, b)
	}
	policy.Bindings[0].Subjects = append(policy.Bindings[0].Subjects, &sandboxv1.Subject{Kind: access.SubjectKey, Name: "ci"})
	_, err = AccessAPI{Service: replicas[1]}.PutAccess(t.Context(), policy)
	must.Succeed(t, err)
	within("the first replica to know the policy", func(ctx context.Context) error {
		who, err := replicas[0].Authenticate(ctx, key.GetToken())
		if err != nil {
			return err
		}
		grant, err := replicas[0].Authorize(ctx, who, access.Permission{Resource: access.Sandboxes, Verb: "get"})
		return errors.Join(err, wait.If(!grant.Empty(), "no grant"))
	})
	_, err = KeysAPI{Service: replicas[1]}.DeleteKey(t.Context(), &sandboxv1.DeleteKeyRequest{Name: "ci"})
	must.Succeed(t, err)
	within("the first replica to hear of the revocation", func(ctx context.Context) error {
		_, err := replicas[0].Authenticate(ctx, key.GetToken())
		return wait.If(errors.Is(err, access.ErrNotMine), err)
	})
}
