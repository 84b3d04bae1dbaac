// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
)

// The API server adds the owner reference only to the pool that was read: not to another one of its name, and not to one that has changed.
func TestOwnPatchesWhatWasRead(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "pool"}}
	sent := ""
	c := fake.NewClientBuilder().WithScheme(planetest.Scheme(t)).WithObjects(pool).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, p client.Patch, _ ...client.PatchOption) error {
			body, err := p.Data(obj)
			sent += string(p.Type()) + " " + string(body)
			return err
		},
	}).Build()
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	r := &Reconciler{client: c, live: c, recorder: events.NewFakeRecorder(1)}
	must.Succeed(t, r.own(t.Context(), pool, &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "env"}}))
	want := fmt.Sprintf(`application/json-patch+json [{"op":"test","path":"/metadata/uid","value":"pool"},`+
		`{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/metadata/ownerReferences",`+
		`"value":[{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxEnv","name":"p","uid":"env"}]}]`, pool.ResourceVersion)
	if pool.ResourceVersion == "" || sent != want {
		t.Errorf("sent\n%s\nwant\n%s", sent, want)
	}
}
