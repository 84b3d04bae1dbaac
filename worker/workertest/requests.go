// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// call is a request, read completely.
type call struct {
	method string
	name   name // without an object's name, the whole namespace or cluster
	labels labels.Selector
	patch  types.PatchType
	body   []byte
}

// readCall parses the paths of the existing kinds, and nothing else.
func readCall(r *http.Request) (call, error) {
	c := call{method: r.Method, patch: types.PatchType(r.Header.Get("Content-Type"))}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 0 && parts[0] == "api" {
		parts = parts[1:]
	} else if len(parts) > 2 {
		parts = parts[2:]
	}
	parts = parts[min(1, len(parts)):] // the version
	if len(parts) >= 3 && parts[0] == "namespaces" {
		c.name.Namespace, parts = parts[1], parts[2:]
	}
	for _, k := range kinds {
		if len(parts) > 0 && k.resource == parts[0] {
			c.name.kind = k
		}
	}
	if c.name.kind == nil {
		return c, apierrors.NewBadRequest("no such resource: " + r.URL.Path)
	}
	if len(parts) > 1 {
		c.name.Name = parts[1]
	}
	var err error
	if c.labels, err = labels.Parse(r.URL.Query().Get("labelSelector")); err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	if r.Body != nil {
		if c.body, err = io.ReadAll(r.Body); err != nil {
			return c, apierrors.NewBadRequest(err.Error())
		}
	}
	return c, nil
}

// carryOut carries out a request.
func (s *server) carryOut(c call) (runtime.Object, error) {
	switch {
	case c.method == http.MethodGet && c.name.Name == "":
		return s.handleList(c)
	case c.method == http.MethodGet:
		if object := s.get(c.name); object != nil {
			return typed(c.name.kind, object), nil
		}
		return nil, notFound(c.name)
	case c.method == http.MethodPost:
		return s.handleCreate(c)
	case c.method == http.MethodPut:
		return s.handleUpdate(c)
	case c.method == http.MethodPatch:
		return s.handlePatch(c)
	case c.method == http.MethodDelete:
		options, err := deleteOptions(c.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		object, err := s.remove(c.name, options.Preconditions)
		return typedOr(c.name.kind, object, err)
	}
	return nil, apierrors.NewMethodNotSupported(c.name.group(), c.method)
}

// deleteOptions decodes the body of a deletion: JSON, or protobuf from the claim path's client.
func deleteOptions(body []byte) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if !bytes.HasPrefix(body, []byte("k8s\x00")) {
		if len(body) == 0 {
			return options, nil
		}
		return options, json.Unmarshal(body, options)
	}
	_, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, options)
	return options, err
}

func (s *server) handleList(c call) (runtime.Object, error) {
	all, version := s.list(c.name.kind)
	var items []runtime.Object
	for _, object := range all {
		if (c.name.Namespace == "" || c.name.Namespace == object.GetNamespace()) && c.labels.Matches(labels.Set(object.GetLabels())) {
			items = append(items, object)
		}
	}
	list := c.name.kind.list()
	if err := meta.SetList(list, items); err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	list.SetResourceVersion(fmt.Sprint(version))
	list.GetObjectKind().SetGroupVersionKind(c.name.kind.gvk.GroupVersion().WithKind(c.name.kind.gvk.Kind + "List"))
	return list, nil
}

func (s *server) handleCreate(c call) (runtime.Object, error) {
	object := c.name.kind.empty()
	if err := json.Unmarshal(c.body, object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	object.SetNamespace(c.name.Namespace)
	created, err := s.create(object)
	return typedOr(c.name.kind, created, err)
}

func (s *server) handleUpdate(c call) (runtime.Object, error) {
	object := c.name.kind.empty()
	if err := json.Unmarshal(c.body, object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	updated, err := s.update(c.name, func(before client.Object) (client.Object, error) {
		if v := object.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
			return nil, conflict(c.name, "the object has been modified")
		}
		return object, nil
	})
	return typedOr(c.name.kind, updated, err)
}

// handlePatch carries out JSON patches, the only kind that the claim path and its surroundings send.
func (s *server) handlePatch(c call) (runtime.Object, error) {
	if c.patch != types.JSONPatchType {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, c.method, c.name.group(), c.name.Name,
			"JSON patches only", 0, true)
	}
	operations, err := jsonpatch.DecodePatch(c.body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	patched, err := s.update(c.name, func(before client.Object) (client.Object, error) {
		data, err := json.Marshal(before)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", c.name.Name, err)
		}
		if data, err = operations.Apply(data); err != nil {
			return nil, testFailed(err)
		}
		after := c.name.kind.empty()
		if err := json.Unmarshal(data, after); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return after, nil
	})
	return typedOr(c.name.kind, patched, err)
}

// typed sets the kind in the object, as on the wire.
func typed(k *kind, object client.Object) runtime.Object {
	object = copyOf(object)
	object.GetObjectKind().SetGroupVersionKind(k.gvk)
	return object
}

func typedOr(k *kind, object client.Object, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return typed(k, object), nil
}
