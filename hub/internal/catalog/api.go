// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/json"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

const (
	defaultPage = 100
	maxPage     = 1000
	// latestTimeout bounds how long a call waits for the store before it uses what this replica knows.
	latestTimeout = 500 * time.Millisecond
)

// read returns the manifest of a request in its stored form, after the checks that need no other cluster. before is its latest record.
func (s *Service) read(ctx context.Context, ref manifest.Ref, in *structpb.Struct, before *record) (manifest.Object, error) {
	if in == nil {
		return nil, problem.InvalidField("manifest", "", "a "+ref.Kind)
	}
	data, err := json.Marshal(in.AsMap())
	if err != nil {
		return nil, problem.New(problem.Invalid, "the manifest is not JSON: %w", err)
	}
	if len(data) > maxManifest {
		return nil, problem.InvalidField("manifest", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d bytes", maxManifest))
	}
	o, err := manifest.Parse(data)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%w", err)
	}
	if o.Ref() != ref {
		return nil, problem.InvalidField("metadata.name", clip.Text(o.Ref().String(), maxMessage), ref.String()+", as in the path")
	}
	if o, err = s.check(ctx, ref, o, before); err != nil {
		return nil, err
	}
	if err := s.checkVisible(ctx, o); err != nil {
		return nil, err
	}
	if err := checkClusters(ctx, o); err != nil {
		return nil, err
	}
	return o, checkParts(ctx, before.objects()...)
}

// check returns a manifest in its stored form, after the checks that need no other cluster and no caller.
func (s *Service) check(ctx context.Context, ref manifest.Ref, o manifest.Object, before *record) (manifest.Object, error) {
	var old manifest.Object
	if before != nil {
		old = before.object
	}
	if err := refused(ctx, o, old); err != nil {
		return nil, err
	}
	o = o.Clean()
	if _, err := manifest.PlanOf(o); err != nil {
		return nil, problem.New(problem.Invalid, "%s: %w", ref, err)
	}
	return o, nil
}

// refused returns the error that an API server would return.
func refused(ctx context.Context, o, before manifest.Object) error {
	err := manifest.Check(ctx, o, before)
	if err == nil {
		err = reserved(o)
	}
	if err == nil {
		return nil
	}
	p := problem.New(problem.Invalid, "%w", err)
	for _, cause := range manifest.Faults(err) {
		p.Fields = append(p.Fields, problem.Field{Field: cause.Field, Valid: clip.Text(cause.Message, maxMessage)})
	}
	return p
}

// settableKeys lists the reserved keys that users may set. The clusters' admission policies have the same list.
var settableKeys = append(slices.Clone(v1alpha1.UserAnnotationKeys),
	v1alpha1.CatalogRolloutAnnotationKey, v1alpha1.CatalogAnnotationKey, v1alpha1.LabelSyncSource) // the last two are dropped

func isReserved(key string) bool {
	return (strings.HasPrefix(key, "agentbox.navix.sh/") || strings.HasPrefix(key, "agentbox.io/")) && !slices.Contains(settableKeys, key)
}

func reserved(o manifest.Object) error {
	for _, field := range []string{"labels", "annotations"} {
		metadata, _ := o["metadata"].(map[string]any)
		keys, _ := metadata[field].(map[string]any)
		for key := range keys {
			if isReserved(key) {
				return fmt.Errorf("metadata.%s: %s: reserved for Atoll; remove it", field, key)
			}
		}
	}
	return nil
}

// dropReserved removes the keys that reserved refuses.
func dropReserved(o manifest.Object) {
	metadata, _ := o["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		keys, _ := metadata[field].(map[string]any)
		maps.DeleteFunc(keys, func(key string, _ any) bool { return isReserved(key) })
		if len(keys) == 0 {
			delete(metadata, field)
		}
	}
}

// checkClusters returns an error for a manifest with parts in clusters that the caller may not see.
func checkClusters(ctx context.Context, o manifest.Object) error {
	for _, id := range o.Clusters() {
		if err := principal.From(ctx).CheckPart(o.Namespace(), o.Name(), id); err != nil {
			return err
		}
	}
	return nil
}

// checkParts returns an error if stored manifests of an Env have parts in clusters that the caller may not see. The error does not name
// these clusters.
func checkParts(ctx context.Context, all ...manifest.Object) error {
	for _, o := range all {
		if err := principal.From(ctx).CheckParts(o.Namespace(), o.Name(), o.Clusters()); err != nil {
			return err
		}
	}
	return nil
}

// seenParts returns a function that reports whether the caller may see an Env's part, or a template, in a cluster. For an Env, a cluster
// that the caller may see only because of another Env does not count.
func seenParts(ctx context.Context, ref manifest.Ref) func(cluster string) bool {
	p := principal.From(ctx)
	if ref.Kind != manifest.EnvKind {
		return p.SeesCluster
	}
	return func(cluster string) bool { return p.SeesPart(ref.Namespace, ref.Name, cluster) }
}

func envRef(namespace, name string) manifest.Ref {
	return manifest.Ref{Kind: manifest.EnvKind, Namespace: namespace, Name: name}
}

func templateRef(name string) manifest.Ref {
	return manifest.Ref{Kind: manifest.TemplateKind, Name: name}
}

// put stores a manifest, or its removal if o is nil, and returns the record, to be shown only. If before already has the manifest, put
// changes nothing.
func (s *Service) put(ctx context.Context, ref manifest.Ref, o manifest.Object, before *record, expected int32) (*record, error) {
	if expected != 0 && (before == nil || expected != before.Revision) {
		return nil, problem.InvalidField("revision", fmt.Sprint(expected), "the revision that is there: get it, change that, and put it again")
	}
	r := &record{Ref: ref, object: o}
	if o != nil {
		data, err := o.Encode()
		if err != nil {
			return nil, err
		}
		r.Manifest = data
	}
	if before != nil && string(before.Manifest) == string(r.Manifest) && before.Revision >= s.floor(ref) {
		return before, nil
	}
	if err := s.replace(ctx, r, before); err != nil {
		return nil, err
	}
	return r, nil
}

// floor returns the latest revision that a cluster was found to have.
func (s *Service) floor(ref manifest.Ref) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.floors[keyOf(ref)]
}

// replace stores a record as the next revision.
func (s *Service) replace(ctx context.Context, r, before *record) error {
	ref := r.Ref
	r.Changed, r.By = s.opts.Clock.Now().UTC(), principal.From(ctx).Name
	if before == nil || before.removed() {
		if err := s.room(ref.Kind); err != nil {
			return err
		}
	}
	r.Revision = s.floor(ref) + 1
	if before != nil {
		r.Revision = max(r.Revision, before.Revision+1)
	}
	if r.Source != nil {
		r.Source.Revision = r.Revision
	}
	if err := s.stage(r, r.object, before); err != nil {
		return err
	}
	return s.writeRevision(ctx, r, before)
}

// room returns an error if the hub keeps no more objects of a kind.
func (s *Service) room(kind string) error {
	n, removed, most := 0, 0, map[string]int{manifest.EnvKind: maxEnvs, manifest.TemplateKind: maxTemplates}[kind]
	for _, r := range s.state.Load().records {
		switch {
		case r.Ref.Kind != kind:
		case r.removed():
			removed++
		default:
			n++
		}
	}
	if removed >= 4*most {
		return problem.New(problem.Quota, "the catalogue remembers %d removed objects of kind %s, and forgets them after 30 days", removed, kind)
	}
	if n >= most {
		return problem.New(problem.Quota, "the catalogue has %d objects of kind %s, and keeps no more; delete some", n, kind)
	}
	return nil
}

// PutEnv writes an Env.
func (s *Service) PutEnv(ctx context.Context, in *sandboxv1.PutEnvRequest) error {
	if err := principal.From(ctx).CheckEnv(in.GetNamespace(), in.GetName()); err != nil {
		return err
	}
	ref := envRef(in.GetNamespace(), in.GetName())
	if err := s.writable(ref); err != nil {
		return err
	}
	before := s.latest(ctx, ref)
	o, err := s.read(ctx, ref, in.GetEnv(), before)
	if err != nil {
		return err
	}
	_, err = s.put(ctx, ref, o, before, in.GetRevision())
	return err
}

// DeleteEnv removes an Env.
func (s *Service) DeleteEnv(ctx context.Context, in *sandboxv1.DeleteEnvRequest) error {
	if err := principal.From(ctx).CheckEnv(in.GetNamespace(), in.GetName()); err != nil {
		return err
	}
	r, err := s.find(ctx, envRef(in.GetNamespace(), in.GetName()))
	if err != nil {
		return err
	}
	if err := checkParts(ctx, r.objects()...); err != nil {
		return err
	}
	if err := s.removable(ctx, r.Ref); err != nil {
		return err
	}
	_, err = s.put(ctx, r.Ref, nil, r, 0)
	return err
}

func unknown(ref manifest.Ref) error { return problem.New(problem.NotFound, "%s", ref.Missing()) }

// find returns the record of an object that is not removed.
func (s *Service) find(ctx context.Context, ref manifest.Ref) (*record, error) {
	if r := s.latest(ctx, ref); r != nil && !r.removed() {
		return r, nil
	}
	return nil, unknown(ref)
}

// latest returns an object's record, or nil if there is none. If other replicas write the store too, it first reads the entry from the
// store; because the caller may have just written it at another replica. If the store does not respond soon, it returns what this replica
// knows.
func (s *Service) latest(ctx context.Context, ref manifest.Ref) *record {
	key := keyOf(ref)
	if _, shared := s.opts.Store.(store.Shared); shared {
		ctx, cancel := context.WithTimeout(ctx, latestTimeout)
		defer cancel()
		if e, ok, err := s.opts.Store.Get(ctx, objectPrefix+key); err == nil && ok {
			s.apply([]store.Event{{Entry: e}})
		}
	}
	return s.state.Load().records[key]
}

// Entry returns the catalogue's entry of an Env without its manifest, as this replica knows it, or nil if there is none.
func (s *Service) Entry(ctx context.Context, key segment.Key) *sandboxv1.CatalogEntry {
	entry, _ := s.entry(ctx, envRef(key.Namespace, key.Name))
	return entry
}

// FullEntry returns the latest entry of an Env, or nil if there is none. It has warnings, and the manifest if all of it is open to the
// caller.
func (s *Service) FullEntry(ctx context.Context, key segment.Key) (*sandboxv1.CatalogEntry, error) {
	ref := envRef(key.Namespace, key.Name)
	s.latest(ctx, ref)
	entry, r := s.entry(ctx, ref)
	if entry == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	if checkParts(ctx, r.object) == nil { // a manifest has the segments of all clusters
		var err error
		if entry.Manifest, err = toStruct(r.Manifest); err != nil {
			return nil, err
		}
	}
	entry.Warnings = s.warnings(ctx, r.object)
	return entry, nil
}

// entry returns the entry of an Env with its record, or nil if there is none.
func (s *Service) entry(ctx context.Context, ref manifest.Ref) (*sandboxv1.CatalogEntry, *record) {
	state := s.state.Load()
	r := state.records[keyOf(ref)]
	if r == nil {
		return nil, nil
	}
	entry := state.show(r, seenParts(ctx, ref))
	if r.removed() && len(entry.GetClusters()) == 0 {
		return nil, nil
	}
	return entry, r
}

// Envs lists the Envs of a namespace; an empty namespace means all.
func (s *Service) Envs(namespace string) (out []segment.Key) {
	for _, r := range s.state.Load().records {
		if r.Ref.Kind == manifest.EnvKind && !r.removed() && (namespace == "" || namespace == r.Ref.Namespace) {
			out = append(out, segment.Key{Namespace: r.Ref.Namespace, Name: r.Ref.Name})
		}
	}
	return out
}

// ListEnvRevisions returns the last revisions of an Env.
func (s *Service) ListEnvRevisions(ctx context.Context, in *sandboxv1.ListEnvRevisionsRequest) (*sandboxv1.ListRevisionsResponse, error) {
	if err := principal.From(ctx).CheckEnv(in.GetNamespace(), in.GetName()); err != nil {
		return nil, err
	}
	ref := envRef(in.GetNamespace(), in.GetName())
	r := s.latest(ctx, ref)
	if r != nil {
		if err := checkParts(ctx, r.object); err != nil {
			return nil, err
		}
	}
	return s.revisions(ctx, ref, r)
}

// revisions returns the last revisions up to that of r, the record that the caller was found to see; r may be nil.
func (s *Service) revisions(ctx context.Context, ref manifest.Ref, r *record) (*sandboxv1.ListRevisionsResponse, error) {
	if r == nil {
		return nil, unknown(ref)
	}
	history, err := s.history(ctx, ref)
	if err != nil {
		return nil, err
	}
	// Another call may have written a later one since r was read.
	history = slices.DeleteFunc(history, func(h revision) bool { return h.Revision > r.Revision })
	objects := make([]manifest.Object, len(history))
	for i, h := range history { // an earlier manifest may name more clusters than the last one, or be hidden from the caller
		o, err := manifest.Parse(h.Manifest)
		if err != nil || checkParts(ctx, o) != nil || ref.Kind == manifest.TemplateKind && !visible(ctx, o) {
			history[i].Manifest = nil
			continue
		}
		objects[i] = o
	}
	out := &sandboxv1.ListRevisionsResponse{}
	for i, h := range history {
		shown := &sandboxv1.CatalogRevision{Revision: h.Revision, Changed: timestamppb.New(h.Changed), ChangedBy: h.By}
		if shown.Manifest, err = toStruct(h.Manifest); err != nil {
			return nil, err
		}
		if i+1 < len(history) && objects[i] != nil && objects[i+1] != nil {
			shown.Changes = manifest.Diff(objects[i+1], objects[i])
		}
		out.Revisions = append(out.Revisions, shown)
	}
	return out, nil
}
