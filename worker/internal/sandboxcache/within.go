// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Within returns a live reader whose lists of all namespaces are limited to the given ones. Without namespaces it returns reader. A list
// needs a limit or a namespace: Continue leads on to the next namespace, and each page has its own revision.
func Within(reader client.Reader, namespaces []string) client.Reader {
	if len(namespaces) == 0 {
		return reader
	}
	return within{reader, slices.Clone(namespaces)}
}

type within struct {
	client.Reader
	namespaces []string
}

// List lists one namespace after the other.
func (w within) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.Namespace != "" {
		return w.Reader.List(ctx, list, opts...)
	}
	if o.Limit == 0 {
		return fmt.Errorf("listing %T in %d namespaces needs a limit", list, len(w.namespaces))
	}
	at, inner := 0, ""
	if o.Continue != "" {
		var index string
		index, inner, _ = strings.Cut(o.Continue, "/")
		n, err := strconv.Atoi(index)
		if err != nil || n < 0 || n >= len(w.namespaces) {
			return fmt.Errorf("continue token %q is not of this reader", o.Continue)
		}
		at = n
	}
	o.Namespace, o.Continue = w.namespaces[at], inner
	if err := w.Reader.List(ctx, list, o); err != nil {
		return err
	}
	switch next := list.GetContinue(); {
	case next != "":
		list.SetContinue(strconv.Itoa(at) + "/" + next)
	case at+1 < len(w.namespaces):
		list.SetContinue(strconv.Itoa(at+1) + "/")
	}
	return nil
}

// Only returns a cache that reports other namespaces than the given ones as empty. A cache of some namespaces fails for others, and a
// caller may ask for any namespace. Without namespaces it returns inner.
func Only(inner cache.Cache, namespaces []string) cache.Cache {
	if len(namespaces) == 0 {
		return inner
	}
	return only{inner, slices.Clone(namespaces)}
}

type only struct {
	cache.Cache
	namespaces []string
}

// Get returns NotFound for objects of other namespaces.
func (o only) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if key.Namespace != "" && !slices.Contains(o.namespaces, key.Namespace) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.String())
	}
	return o.Cache.Get(ctx, key, into, opts...)
}

// List returns nothing for other namespaces.
func (o only) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace; namespace != "" && !slices.Contains(o.namespaces, namespace) {
		return meta.SetList(list, nil)
	}
	return o.Cache.List(ctx, list, opts...)
}
