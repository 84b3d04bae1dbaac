// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/manifest"
)

// part is what one cluster is to have of one record.
type part struct {
	ref      manifest.Ref
	revision int32
	latest   int32           // the record's own: a rollout may keep a cluster at an earlier one
	whole    manifest.Object // with the segments of all clusters; nil: the cluster is to have nothing
}

// of returns what a cluster is to have, and false if that is nothing.
func (p part) of(cluster string) (manifest.Object, bool) {
	if p.whole == nil {
		return nil, false
	}
	return p.whole.Part(cluster)
}

// target returns what a cluster is to have of a record, as far as a rollout has come. known is false while it is to have what it has.
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

// concerns reports whether a record, nil: none, says what a cluster is to have. A template may be that of any Env.
func (r *record) concerns(cluster string) bool {
	return r != nil && (r.Ref.Kind == manifest.TemplateKind || r.in.Has(cluster) || r.Rollout != nil && r.Rollout.in.Has(cluster))
}

// wanted is the revision that a cluster is to have.
func (s *state) wanted(r *record, cluster string) int32 {
	p, _ := r.target(cluster)
	return p.revision
}

// parts returns what a cluster is to have, and what it is to have no more. serves: which Envs it was given. own: it is
// the hub's own cluster, which has what was taken from it.
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

// pending is what has to be sent to a cluster.
type pending struct {
	apply, remove []part
	newer         map[string]int32 // revisions of the cluster that are later than the catalogue's latest
}

// decide compares what a cluster is to have with what it has, by key. Nothing is removed that the cluster has in a later revision (I4), and
// nothing that no record is about (I5). told: what became of each; because an equal number alone is no proof of an equal manifest.
// A cluster that a rollout holds back keeps what it has of the revisions that the rollout replaces.
func decide(have, gone []part, held map[string]int32, told fates, again func(key string, revision int32) bool) (out pending) {
	out.newer = map[string]int32{}
	for _, p := range have {
		key := keyOf(p.ref)
		switch at := held[key]; {
		case at > p.latest:
			out.newer[key] = at
		case at > p.revision:
		case (at < p.revision || !told.took(key, at)) && again(key, p.revision):
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
	slices.SortFunc(out.remove, func(a, b part) int { return b.ref.Compare(a.ref) }) // and after them
	return out
}

// maxBatch bounds the bytes of the manifests in one call.
const maxBatch = 256 << 10

// batches are the objects of calls to a cluster: a few at a time, so that none is too large or takes too long.
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
func (f fates) took(key string, revision int32) bool {
	return f[key].State == sandboxv1.CatalogCluster_APPLIED && f[key].Revision == revision
}

// same reports whether two clusters' fates are equal.
func (f fates) same(other fates) bool { return maps.Equal(f, other) }
