// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/manifest"
)

// part is the desired state of one record in one cluster.
type part struct {
	ref      manifest.Ref
	revision int32
	latest   int32           // the record's own revision: a rollout may keep a cluster at an earlier one
	whole    manifest.Object // with the segments of all clusters; nil: the cluster must have nothing
}

// of returns a cluster's share of the manifest, and false if the cluster must have nothing.
func (p part) of(cluster string) (manifest.Object, bool) {
	if p.whole == nil {
		return nil, false
	}
	return p.whole.Part(cluster)
}

// target returns a cluster's desired part of a record at the present stage of its rollout. known is false if the cluster must keep what it
// has.
func (r *record) target(cluster string) (p part, known bool) {
	p = part{ref: r.Ref, revision: r.Revision, latest: r.Revision}
	whole, in := r.object, r.in
	if r.Rollout.holdsBack(cluster) {
		if r.Rollout.before == nil {
			return p, false
		}
		p.revision, whole, in = r.Rollout.FromRevision, r.Rollout.before, r.Rollout.in
	}
	if in.Has(cluster) {
		p.whole = whole
	}
	return p, true
}

// concerns reports whether a record determines what a cluster must have; r may be nil. A template concerns every cluster, because any Env
// may use it.
func (r *record) concerns(cluster string) bool {
	return r != nil && (r.Ref.Kind == manifest.TemplateKind || r.in.Has(cluster) || r.Rollout != nil && r.Rollout.in.Has(cluster))
}

// parts returns the parts that a cluster must have, those that it must not have any more, and the Envs that are withheld because the
// cluster may not serve them. own is true for the hub's own cluster, which already has the objects that were taken from it.
func (s *state) parts(cluster string, own bool, serves func(manifest.Ref) bool) (have, gone []part, withheld []manifest.Ref) {
	named := map[string]bool{}
	for _, r := range s.records {
		if r.Ref.Kind != manifest.EnvKind {
			continue
		}
		if own && r.Source != nil {
			named[r.object.Template()] = true
			continue
		}
		p, known := r.target(cluster)
		switch {
		case !known:
		case p.whole == nil:
			gone = append(gone, p)
		case !serves(r.Ref):
			withheld = append(withheld, r.Ref)
		default:
			have = append(have, p)
			named[p.whole.Template()] = true
		}
	}
	for _, r := range s.records {
		if r.Ref.Kind != manifest.TemplateKind || own && r.Source != nil {
			continue
		}
		if p := (part{ref: r.Ref, revision: r.Revision, latest: r.Revision}); !r.removed() && named[r.Ref.Name] {
			p.whole = r.object
			have = append(have, p)
		} else {
			gone = append(gone, p)
		}
	}
	return have, gone, withheld
}

// pending holds the parts that must be sent to a cluster.
type pending struct {
	apply, remove []part
	newer         map[string]int32 // revisions of the cluster that are later than the catalogue's latest
}

// decide compares a cluster's desired parts with the revisions that it holds, by key. It removes nothing that the cluster has in a later
// revision (I4), and nothing without a record (I5). It needs known, the status of each manifest; because an equal revision number alone
// does not prove an equal manifest. A cluster that a rollout holds back keeps the revisions that the rollout replaces.
func decide(have, gone []part, held map[string]int32, known statuses, again func(key string, revision int32) bool) (out pending) {
	out.newer = map[string]int32{}
	for _, p := range have {
		key := keyOf(p.ref)
		switch at := held[key]; {
		case at > p.latest:
			out.newer[key] = at
		case at > p.revision:
		case (at < p.revision || !known.took(key, at)) && again(key, p.revision):
			out.apply = append(out.apply, p)
		}
	}
	for _, p := range gone {
		key := keyOf(p.ref)
		at, has := held[key]
		switch {
		case !has:
		case at > p.latest:
			out.newer[key] = at
		case at > p.revision:
		case again(key, p.revision):
			out.remove = append(out.remove, p)
		}
	}
	slices.SortFunc(out.apply, func(a, b part) int { return a.ref.Compare(b.ref) })  // templates before the Envs that name them
	slices.SortFunc(out.remove, func(a, b part) int { return b.ref.Compare(a.ref) }) // and removed after them
	return out
}

// maxBatch bounds the bytes of the manifests in one call.
const maxBatch = 256 << 10

// batches splits parts into the objects of several calls to a cluster, so that no call is too large or takes too long.
func batches(cluster string, parts []part) (out [][]*federationv1.CatalogObject, err error) {
	size := 0
	for _, p := range parts {
		o := &federationv1.CatalogObject{Kind: p.ref.Kind, Namespace: p.ref.Namespace, Name: p.ref.Name, Revision: p.revision}
		if own, has := p.of(cluster); has {
			if o.Manifest, err = own.Encode(); err != nil {
				return nil, err
			}
		}
		last := len(out) - 1
		if last < 0 || size+len(o.GetManifest()) > maxBatch || len(out[last]) == 20 {
			out, size = append(out, nil), 0
			last++
		}
		out[last] = append(out[last], o)
		size += len(o.GetManifest())
	}
	return out, nil
}

// took reports whether a cluster was seen to take a revision.
func (f statuses) took(key string, revision int32) bool {
	return f[key].State == sandboxv1.CatalogCluster_APPLIED && f[key].Revision == revision
}

// same reports whether two sets of statuses are equal.
func (f statuses) same(other statuses) bool { return maps.Equal(f, other) }
