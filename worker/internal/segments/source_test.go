// SPDX-License-Identifier: Apache-2.0

package segments

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
