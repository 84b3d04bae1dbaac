// SPDX-License-Identifier: Apache-2.0

package segments

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/pkg/segment"
)

// I10: marks are a set of Envs, however many events there are. Without a stream none is kept.
func TestI10MarksAreASetOfEnvs(t *testing.T) {
	s := New(Options{})
	a, b := segment.Key{Namespace: "default", Name: "a"}, segment.Key{Namespace: "default", Name: "b"}
	s.Mark(a)
	if got := s.Take(); len(got) != 0 {
		t.Errorf("without a stream %v are kept", got)
	}
	s.SetOpen(true)
	for range 1000 {
		s.Mark(a)
		s.Mark(b)
	}
	select {
	case <-s.Marked():
	default:
		t.Error("no token tells of the marks")
	}
	if got := s.Take(); len(got) != 2 {
		t.Errorf("marked are %v, want a and b", got)
	}
	if got := s.Take(); len(got) != 0 {
		t.Errorf("%v are still marked", got)
	}
}

// A segment is neither of the moment of a mark, nor of that of an earlier segment, and stays as it was built.
func TestASegmentIsOfTheMomentAtWhichItIsBuilt(t *testing.T) {
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py"}}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{{Name: "a"}}}}
	cache := fake.NewClientBuilder().WithScheme(planetest.Scheme(t)).WithObjects(env).Build()
	s, key := New(Options{Cache: cache, ClusterID: "east"}), segment.Key{Namespace: "default", Name: "py"}
	s.SetOpen(true)
	s.Mark(key)
	var single, listed []*segment.Segment
	for replicas := range int32(3) {
		must.Succeed(t, cache.Get(t.Context(), client.ObjectKeyFromObject(env), env))
		env.Spec.Clusters[0].Members[0].Spec.Replicas = replicas + 1
		must.Succeed(t, cache.Update(t.Context(), env))
		one, err := s.Segment(t.Context(), key)
		must.Succeed(t, err)
		all, err := s.All(t.Context())
		must.Succeed(t, err)
		single, listed = append(single, one), append(listed, all...)
	}
	if len(listed) != 3 {
		t.Fatalf("%d segments were listed, want one of each moment", len(listed))
	}
	for i := range single {
		if a, b := single[i].Members()[0].Desired, listed[i].Members()[0].Desired; a != int32(i+1) || b != a {
			t.Errorf("at %d replicas the segment has %d, in the list %d", i+1, a, b)
		}
	}
}

// failing is a cache of which each read fails.
type failing struct {
	client.Reader
	err error
}

func (f failing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return f.err
}

// I5: an Env has no segment only if the cache lacks it. One that cannot be read is not reported as gone.
func TestI5AnEnvThatCannotBeReadIsNotGone(t *testing.T) {
	for _, c := range []struct {
		err  error
		gone bool
	}{
		{apierrors.NewNotFound(schema.GroupResource{Resource: "sandboxenvs"}, "py"), true},
		{errors.New("the cache has not started"), false},
	} {
		s := New(Options{Cache: failing{err: c.err}, ClusterID: "east"})
		got, err := s.Segment(t.Context(), segment.Key{Namespace: "default", Name: "py"})
		if got != nil || (err == nil) != c.gone {
			t.Errorf("%v: %v, %v", c.err, got, err)
		}
	}
}

func TestWithoutAnAutoscalerNoPoolGrows(t *testing.T) {
	grows, saturated := New(Options{}).Outlooks.Outlook(types.NamespacedName{Namespace: "default", Name: "a"})
	if grows || saturated != 0 {
		t.Errorf("can grow %t, saturated for %s", grows, saturated)
	}
}
