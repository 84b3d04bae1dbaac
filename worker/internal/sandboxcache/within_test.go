// SPDX-License-Identifier: Apache-2.0

package sandboxcache_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/worker/internal/sandboxcache"
)

// pages returns what an API server returns: one Pod a page, of one namespace.
type pages map[string][]string

func (p pages) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (p pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	names, at := p[o.Namespace], len(o.Continue)
	pods := &corev1.PodList{}
	if at < len(names) {
		pods.Items = []corev1.Pod{{}}
		pods.Items[0].Name = names[at]
	}
	if at+1 < len(names) {
		pods.Continue = o.Continue + "x"
	}
	*list.(*corev1.PodList) = *pods
	return nil
}

// TestWithin: a list of all namespaces is one of the listed ones, page by page, and no page is left out.
func TestWithin(t *testing.T) {
	api := pages{"": {"of all"}, "a": {"a1", "a2", "a3"}, "b": nil, "c": {"c1", "c2"}, "d": {"not listed"}}
	list := func(namespaces []string, opts ...client.ListOption) (names []string, err error) {
		reader := sandboxcache.Within(api, namespaces)
		for next, reads := "", 0; reads < 20; reads++ {
			page := &corev1.PodList{}
			if err := reader.List(t.Context(), page, append(opts, client.Continue(next))...); err != nil {
				return names, err
			}
			for i := range page.Items {
				names = append(names, page.Items[i].Name)
			}
			if next = page.Continue; next == "" {
				return names, nil
			}
		}
		t.Fatal("the list does not end")
		return nil, nil
	}
	for want, got := range map[string]func() ([]string, error){
		"a1 a2 a3 c1 c2": func() ([]string, error) { return list([]string{"a", "b", "c"}, client.Limit(1)) },
		"of all":         func() ([]string, error) { return list(nil, client.Limit(1)) },
		"not listed":     func() ([]string, error) { return list([]string{"a"}, client.InNamespace("d")) },
	} {
		if names, err := got(); err != nil || strings.Join(names, " ") != want {
			t.Errorf("%s: got %q, %v", want, names, err)
		}
	}
	if _, err := list([]string{"a"}); err == nil {
		t.Error("a list without a limit returns one namespace for all")
	}
	if err := sandboxcache.Within(api, []string{"a"}).List(t.Context(), &corev1.PodList{}, client.Limit(1),
		client.Continue("7/x")); err == nil {
		t.Error("a foreign token is taken")
	}
}
