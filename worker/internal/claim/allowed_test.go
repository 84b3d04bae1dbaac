// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
)

// demoPool is the pool as one of an Env, with these annotations.
func demoPool(annotations map[string]string) *v1alpha1.SandboxPool {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: inventorytest.Pool.Namespace, Name: inventorytest.Pool.Name, Annotations: annotations,
		Labels: map[string]string{v1alpha1.LabelEnv: "demo"},
	}}
	p.Spec.IdleImage = "idle:1"
	p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "i:1"}, {Name: "side", Image: "s:1"}}
	return p
}

// allows replaces the pool by that of an Env, with these annotations on the pool, and puts others on the Env.
func (s *station) allows(pool, env map[string]string) {
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: inventorytest.Pool.Namespace, Name: "demo", Annotations: env}}
	s.Update(func(st *inventory.State) {
		st.SetPool(demoPool(pool))
		st.SetEnv(e)
	})
}

func imageList(patterns string) map[string]string {
	return map[string]string{v1alpha1.AllowedImagesAnnotationKey: patterns}
}

// A claim gets an image of its pool's template, or one that the pool or the Env allows now. Any other is refused before anything is
// written, here and not for other clusters.
func TestI14AClaimGetsOnlyAnImageThatIsAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		pool, env map[string]string
		image     string
		refused   string // part of the message
	}{
		"none":                      {nil, nil, "", ""},
		"the template's":            {nil, nil, "docker.io/library/i:1", ""},
		"the idle one":              {nil, nil, "idle:1", ""},
		"a sidecar's":               {nil, nil, "s:1", `image: "s:1" is not allowed here, want i:1, idle:1;`},
		"another tag":               {nil, nil, "i:2", `want i:1, idle:1;`},
		"of the pool's list":        {imageList("i"), nil, "i:2", ""},
		"of the Env's list":         {nil, imageList("i"), "i:2", ""},
		"of neither":                {imageList("a"), imageList("b:1"), "i:2", "want i:1, idle:1, a, b:1;"},
		"of both":                   {imageList("a"), imageList("b:1\ni:2"), "i:2", ""},
		"of an Env's with a fault":  {imageList("a"), imageList("i:2\nB"), "i:2", `allowed-images] line 2: "B" is not valid`},
		"of a pool's with a fault":  {imageList("i:2\n*a"), nil, "i:2", `allowed-images] line 2: "*a" is not valid`},
		"without a digest":          {nil, imageList("*@sha256:*"), "i:2", "want i:1, idle:1, *@sha256:*;"},
		"what is no reference":      {nil, imageList("*"), "I:2", "image: \"I:2\" is not valid"},
		"an other letter that fits": {nil, nil, "\u0456:1", "is not valid"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStation(t, 8)
			s.allows(tc.pool, tc.env)
			s.Appear(s.IdlePod("a"))
			c := s.keyed("k", 1)
			c.Request.Image = tc.image
			_, err := s.Create(t.Context(), c)
			if (err == nil) != (tc.refused == "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %v, want %q", name, err, tc.refused)
			}
			if tc.refused == "" {
				return
			}
			forbidden := problem.FromError(err).Reason == problem.Forbidden
			if forbidden != disposition.Refused(err) || !forbidden && problem.FromError(err).Reason != problem.Invalid || s.API.Patches() > 0 {
				t.Errorf("%s: %v after %d writes", name, err, s.API.Patches())
			}
			// A refused attempt stays refused.
			s.allows(imageList("*"), nil)
			_, again := s.Create(t.Context(), c)
			if forbidden && (again == nil || again.Error() != err.Error()) {
				t.Errorf("%s: the attempt was refused with %v, and then %v", name, err, again)
			}
		})
	}
}

// A claim that denies egress is refused where nothing closes the network, here and not for other clusters.
func TestDenyEgressNeedsNetworkPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		s.allows(nil, nil)
		s.Appear(s.IdlePod("a"))
		request := &sandboxv1.CreateSandboxRequest{DenyEgress: true, Wait: sandboxv1.CreateSandboxRequest_ASSIGNED}
		_, err := s.Create(t.Context(), Claim{Request: request, Pool: inventorytest.Pool})
		if problem.FromError(err).Reason != problem.Misconfigured || !disposition.Refused(err) || s.API.Patches() > 0 {
			t.Errorf("%v after %d writes", err, s.API.Patches())
		}
		s.opts.DeniesEgress = true
		got, err := s.Create(t.Context(), Claim{Request: request, Pool: inventorytest.Pool})
		if err != nil || !got.GetEgressDenied() {
			t.Errorf("with network policies: %v, %v", got, err)
		}
	})
}

// What an Env allows holds at once, and no longer than it says so.
func TestAnEnvsListHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, 8)
		try := func() error {
			_, err := s.Create(t.Context(), Claim{
				Request: &sandboxv1.CreateSandboxRequest{Team: "red", Image: "i:2", NoQueue: true}, Pool: inventorytest.Pool,
			})
			return err
		}
		for _, step := range []struct {
			list map[string]string
			want problem.Reason
		}{{nil, problem.Forbidden}, {imageList("i"), problem.NoCapacity}, {imageList("j"), problem.Forbidden},
			{imageList("*"), problem.NoCapacity}} {
			s.allows(nil, step.list)
			if err := try(); problem.FromError(err).Reason != step.want {
				t.Errorf("list %v: %v, want %s", step.list, err, step.want)
			}
		}
		s.Update(func(st *inventory.State) {
			st.RemoveEnv(&v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}})
		})
		if err := try(); problem.FromError(err).Reason != problem.Forbidden {
			t.Errorf("without an Env: %v", err)
		}
	})
}

// A post-start hook runs in the sandbox's container, or in one that a list names.
func TestI14AHookRunsInTheSandboxsContainerAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		container, list string
		refused         string
	}{
		"none":        {"", "", ""},
		"its own":     {"main", "", ""},
		"a sidecar":   {"side", "", `postStartHooks[0].exec.container: "side" is not open to callers, want main;`},
		"one listed":  {"side", "side", ""},
		"one unknown": {"other", "side", `want main, side;`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStation(t, 8)
			s.allows(map[string]string{v1alpha1.AllowedContainersAnnotationKey: tc.list}, nil)
			exec := map[string]any{"command": []any{"true"}}
			if tc.container != "" {
				exec["container"] = tc.container
			}
			hook, err := structpb.NewStruct(map[string]any{"exec": exec})
			must.Succeed(t, err)
			_, err = s.Create(t.Context(), Claim{
				Request: &sandboxv1.CreateSandboxRequest{Team: "red", PostStartHooks: []*structpb.Struct{hook}, NoQueue: true},
				Pool:    inventorytest.Pool,
			})
			want := problem.NoCapacity // there is no Pod
			if tc.refused != "" {
				want = problem.Forbidden
			}
			if problem.FromError(err).Reason != want || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %v, want %q", name, err, tc.refused)
			}
		})
	}
}
