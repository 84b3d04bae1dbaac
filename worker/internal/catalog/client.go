// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/apitime"
)

const (
	fieldManager = "atoll-catalog"
	// ServiceAccount is the identity that writes, because a field manager is not an identity.
	ServiceAccount = "atoll-catalog"

	callTimeout = 8 * time.Second // of all writes of a call: the hub waits for 10 s
	maxMessage  = 512
)

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs;sandboxtemplates,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs/status,verbs=patch

var resources = map[string]schema.GroupVersionResource{
	manifest.EnvKind:      v1alpha1.GroupVersion.WithResource("sandboxenvs"),
	manifest.TemplateKind: v1alpha1.GroupVersion.WithResource("sandboxtemplates"),
}

// Options configure a Writer.
type Options struct {
	ClusterID string
	Config    *rest.Config // of the ServiceAccount
	// Namespaces are those that the worker serves; empty means all.
	Namespaces []string
	Leads      func() bool    // nil: always
	Time       *apitime.Clock // for written times
	Log        logr.Logger
}

// Writer writes this cluster's part of a catalogue.
type Writer struct {
	opts   Options
	client dynamic.Interface
}

// New returns a Writer.
func New(o Options) (*Writer, error) {
	client, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("building the client of the catalogue: %w", err)
	}
	return &Writer{opts: o, client: client}, nil
}

func (w *Writer) of(r manifest.Ref) dynamic.ResourceInterface {
	if r.Namespace == "" {
		return w.client.Resource(resources[r.Kind])
	}
	return w.client.Resource(resources[r.Kind]).Namespace(r.Namespace)
}

// Catalog carries out a call of the hub.
func (w *Writer) Catalog(ctx context.Context, call *federationv1.CatalogCall) (*federationv1.CatalogResult, error) {
	if w.opts.Leads != nil && !w.opts.Leads() {
		return nil, problem.New(problem.Unavailable, "this worker does not lead its cluster; retry").WithRetryAfter(time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if call.GetMode() == federationv1.CatalogCall_LIST {
		return w.list(ctx)
	}
	one := map[federationv1.CatalogCall_Mode]func(context.Context, *job) objectResult{
		federationv1.CatalogCall_APPLY: w.apply, federationv1.CatalogCall_PLAN: w.plan, federationv1.CatalogCall_READ: w.read,
	}[call.GetMode()]
	if one == nil {
		return nil, problem.New(problem.Unimplemented, "this worker does not know the call %s", call.GetMode())
	}
	out := &federationv1.CatalogResult{}
	for i, list := range [][]*federationv1.CatalogObject{call.GetObjects(), call.GetRemoved()} {
		for _, o := range list {
			j, refused := w.job(call.GetCatalog(), o)
			j.remove, j.plan = i == 1, call.GetMode() == federationv1.CatalogCall_PLAN
			switch {
			case refused != nil:
				out.Outcomes = append(out.Outcomes, refused.of(o))
			case j.remove:
				out.Outcomes = append(out.Outcomes, w.remove(ctx, j).of(o))
			default:
				out.Outcomes = append(out.Outcomes, one(ctx, j).of(o))
			}
		}
	}
	return out, nil
}

// list returns the cluster's objects of catalogues.
func (w *Writer) list(ctx context.Context) (*federationv1.CatalogResult, error) {
	out := &federationv1.CatalogResult{}
	for kind := range resources {
		err := w.each(ctx, kind, v1alpha1.LabelSyncSource+"="+v1alpha1.LabelSyncSourceGlobal, func(o *unstructured.Unstructured) {
			if id, revision, ok := madeBy(o); ok {
				out.Held = append(out.Held, &federationv1.CatalogObject{
					Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Revision: revision, Catalog: id,
				})
			}
		})
		if err != nil {
			return nil, problem.New(problem.Unavailable, "listing objects of kind %s: %w", kind, err)
		}
	}
	return out, nil
}

// each lists the objects of a kind, page by page, in the namespaces that the worker serves.
func (w *Writer) each(ctx context.Context, kind, selector string, visit func(*unstructured.Unstructured)) error {
	from := []dynamic.ResourceInterface{w.client.Resource(resources[kind])}
	if kind == manifest.EnvKind && len(w.opts.Namespaces) > 0 {
		from = nil
		for _, namespace := range w.opts.Namespaces {
			from = append(from, w.client.Resource(resources[kind]).Namespace(namespace))
		}
	}
	for _, part := range from {
		for next := ""; ; {
			page, err := part.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 500, Continue: next})
			if err != nil {
				return err
			}
			for i := range page.Items {
				visit(&page.Items[i])
			}
			if next = page.GetContinue(); next == "" {
				break
			}
		}
	}
	return nil
}

// read returns an object as it is, without what the API server adds. The cluster has no part in a namespace that its worker does not serve,
// and the API server refuses to read there.
func (w *Writer) read(ctx context.Context, j *job) objectResult {
	if only := w.opts.Namespaces; len(only) > 0 && j.ref.Namespace != "" && !slices.Contains(only, j.ref.Namespace) {
		return objectResult{state: federationv1.CatalogOutcome_ABSENT, reason: "NotServed"}
	}
	is, err := w.of(j.ref).Get(ctx, j.ref.Name, metav1.GetOptions{})
	if err != nil {
		return failure(err)
	}
	data, err := manifest.Object(is.Object).Clean().Encode()
	if err != nil {
		return failure(err)
	}
	return objectResult{state: federationv1.CatalogOutcome_FOUND, manifest: data}
}

// madeBy returns the catalogue and the revision in an object's annotation.
func madeBy(o *unstructured.Unstructured) (id string, revision int32, ok bool) {
	return parseMark(o.GetAnnotations()[v1alpha1.CatalogAnnotationKey])
}
