// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// defaultNamespace is the namespace of a request that names none.
const defaultNamespace = "default"

// Catalog stores manifests.
type Catalog interface {
	// Entry returns the entry of an Env without its manifest, or nil if there is none.
	Entry(ctx context.Context, key segment.Key) *sandboxv1.CatalogEntry
	// FullEntry returns the latest entry of an Env with its manifest, or nil if there is none.
	FullEntry(ctx context.Context, key segment.Key) (*sandboxv1.CatalogEntry, error)
	// Envs lists the Envs of a namespace; "" means all.
	Envs(namespace string) []segment.Key
	PutEnv(context.Context, *sandboxv1.PutEnvRequest) error
	DeleteEnv(context.Context, *sandboxv1.DeleteEnvRequest) error
	PlanEnv(context.Context, *sandboxv1.PlanEnvRequest) (*sandboxv1.PlanEnvResponse, error)
	ListEnvRevisions(context.Context, *sandboxv1.ListEnvRevisionsRequest) (*sandboxv1.ListRevisionsResponse, error)
	GetRollout(context.Context, *sandboxv1.GetRolloutRequest) (*sandboxv1.Rollout, error)
	ControlRollout(context.Context, *sandboxv1.ControlRolloutRequest) (*sandboxv1.Rollout, error)
	ImportEnv(context.Context, *sandboxv1.ImportEnvRequest) (*sandboxv1.ImportEnvResponse, error)
}

// Allotments divide maxReplicas over clusters.
type Allotments interface {
	// Shares returns how the maxReplicas of an Env's groups are divided.
	Shares(key segment.Key) []*sandboxv1.Allotment
	// Reclaim takes back a cluster's share once the cluster is forgotten.
	Reclaim(ctx context.Context, cluster string) error
}

type envs struct {
	sandboxv1.UnimplementedEnvsServer
	fleet   Fleet
	service Sandboxes
	catalog Catalog    // nil: there is none
	shares  Allotments // nil: nothing is divided
}

// keys lists the Envs that clusters report, and those of the catalogue, in order.
func (e envs) keys(namespace string) []segment.Key {
	keys := e.fleet.Keys(namespace)
	if e.catalog == nil {
		return keys
	}
	keys = append(keys, e.catalog.Envs(namespace)...)
	slices.SortFunc(keys, segment.Key.Compare)
	return slices.Compact(keys)
}

// summary returns an Env as a list shows it, or nil if there is none.
func (e envs) summary(ctx context.Context, key segment.Key) *sandboxv1.Env {
	if e.catalog == nil {
		return e.merged(key, nil)
	}
	return e.merged(key, e.catalog.Entry(ctx, key))
}

// full returns an Env with its manifest, or nil if there is none.
func (e envs) full(ctx context.Context, key segment.Key) (*sandboxv1.Env, error) {
	if e.catalog == nil {
		return e.merged(key, nil), nil
	}
	entry, err := e.catalog.FullEntry(ctx, key)
	if err != nil {
		return nil, err
	}
	return e.merged(key, entry), nil
}

// merged returns the reports of clusters about an Env together with its catalogue entry, or nil if there is neither.
func (e envs) merged(key segment.Key, entry *sandboxv1.CatalogEntry) *sandboxv1.Env {
	env := e.fleet.Env(key)
	if env != nil && e.shares != nil {
		env.Allotments = e.shares.Shares(key)
	}
	if entry == nil {
		return env
	}
	if env == nil {
		env = &sandboxv1.Env{Namespace: key.Namespace, Name: key.Name}
	}
	env.Catalog = entry
	return env
}

// ListEnvs pages by key: the token is the last key of the previous page.
func (e envs) ListEnvs(ctx context.Context, r *sandboxv1.ListEnvsRequest) (*sandboxv1.ListEnvsResponse, error) {
	p := principal.From(ctx)
	if r.GetNamespace() != "" {
		if err := p.CheckNamespace(r.GetNamespace()); err != nil {
			return nil, err
		}
	}
	if size := r.GetPageSize(); size < 0 || size > maxPage {
		return nil, problem.InvalidField("pageSize", strconv.Itoa(int(size)), "0 to 1000")
	}
	if id := r.GetClusterId(); id != "" && (!slices.Contains(e.fleet.ClusterIDs(), id) || !p.SeesCluster(id)) {
		return nil, clusters{fleet: e.fleet}.missing(p, id)
	}
	var after segment.Key
	if token := r.GetPageToken(); token != "" {
		namespace, name, ok := strings.Cut(token, "/")
		if !ok {
			return nil, problem.InvalidField("pageToken", token, "what nextPageToken said")
		}
		after = segment.Key{Namespace: namespace, Name: name}
	}
	size := int(cmp.Or(r.GetPageSize(), defaultPage))
	out := &sandboxv1.ListEnvsResponse{}
	for _, key := range e.keys(r.GetNamespace()) {
		if key.Compare(after) <= 0 || !p.SeesEnv(key.Namespace, key.Name) {
			continue
		}
		if len(out.GetEnvs()) == size {
			last := out.GetEnvs()[size-1]
			out.NextPageToken = last.GetNamespace() + "/" + last.GetName()
			break
		}
		if env := e.summary(ctx, key); env != nil && isIn(p.ShowEnv(env), r.GetClusterId()) {
			out.Envs = append(out.Envs, env)
		}
	}
	return out, nil
}

// isIn reports whether a cluster has an Env. An empty cluster means any.
func isIn(env *sandboxv1.Env, cluster string) bool {
	return cluster == "" || slices.ContainsFunc(env.GetClusters(),
		func(c *sandboxv1.EnvCluster) bool { return c.GetClusterId() == cluster }) ||
		slices.ContainsFunc(env.GetCatalog().GetClusters(), func(c *sandboxv1.CatalogCluster) bool { return c.GetClusterId() == cluster })
}

// GetEnv returns an Env. Without a namespace it is of the default one, as in a claim; an empty one would name the Envs of all of them.
func (e envs) GetEnv(ctx context.Context, r *sandboxv1.GetEnvRequest) (*sandboxv1.Env, error) {
	p, key := principal.From(ctx), segment.Key{Namespace: cmp.Or(r.GetNamespace(), defaultNamespace), Name: r.GetName()}
	if err := p.CheckEnv(key.Namespace, key.Name); err != nil {
		return nil, err
	}
	env, err := e.full(ctx, key)
	if err != nil {
		return nil, err
	}
	if env != nil {
		return p.ShowEnv(env), nil
	}
	return nil, e.fleet.UnknownEnv(key.Namespace, key.Name, p)
}

// ExplainEnv explains a claim of an Env. Without a namespace it is of the default one, as in a claim.
func (e envs) ExplainEnv(ctx context.Context, r *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error) {
	if r.GetNamespace() == "" {
		r = proto.CloneOf(r)
		r.Namespace = defaultNamespace
	}
	decision, err := e.service.Explain(ctx, r)
	if err != nil {
		return nil, err
	}
	return principal.From(ctx).ShowDecision(r.GetNamespace(), r.GetName(), decision), nil
}

func (e envs) RefreshEnv(ctx context.Context, r *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error) {
	return e.service.RefreshEnv(ctx, r)
}

// PutEnv writes an Env to the catalogue and returns the result.
func (e envs) PutEnv(ctx context.Context, r *sandboxv1.PutEnvRequest) (*sandboxv1.Env, error) {
	if e.catalog == nil {
		return nil, noCatalogue()
	}
	if err := e.catalog.PutEnv(ctx, r); err != nil {
		return nil, err
	}
	env, err := e.full(ctx, segment.Key{Namespace: r.GetNamespace(), Name: r.GetName()})
	if err != nil || env == nil {
		return nil, err
	}
	return principal.From(ctx).ShowEnv(env), nil
}

func (e envs) DeleteEnv(ctx context.Context, r *sandboxv1.DeleteEnvRequest) (*emptypb.Empty, error) {
	if e.catalog == nil {
		return nil, noCatalogue()
	}
	return &emptypb.Empty{}, e.catalog.DeleteEnv(ctx, r)
}

func (e envs) PlanEnv(ctx context.Context, r *sandboxv1.PlanEnvRequest) (*sandboxv1.PlanEnvResponse, error) {
	if e.catalog == nil {
		return nil, noCatalogue()
	}
	return e.catalog.PlanEnv(ctx, r)
}

func (e envs) ListEnvRevisions(ctx context.Context, r *sandboxv1.ListEnvRevisionsRequest) (*sandboxv1.ListRevisionsResponse, error) {
	if e.catalog == nil {
		return nil, noCatalogue()
	}
	return e.catalog.ListEnvRevisions(ctx, r)
}

func (e envs) GetRollout(ctx context.Context, r *sandboxv1.GetRolloutRequest) (*sandboxv1.Rollout, error) {
	if e.catalog == nil {
		return nil, noCatalogue()
	}
	return e.catalog.GetRollout(ctx, r)
}

func (e envs) ControlRollout(ctx context.Context, r *sandboxv1.ControlRolloutRequest) (*sandboxv1.Rollout, error) {
	if e.catalog == nil {
		return nil, noCatalogue()
	}
	return e.catalog.ControlRollout(ctx, r)
}

func (e envs) ImportEnv(ctx context.Context, r *sandboxv1.ImportEnvRequest) (*sandboxv1.ImportEnvResponse, error) {
	if e.catalog == nil {
		return nil, noCatalogue()
	}
	return e.catalog.ImportEnv(ctx, r)
}

func noCatalogue() error {
	return problem.New(problem.Unimplemented, "the hub has no catalogue yet; apply SandboxEnvs and SandboxTemplates in the clusters")
}
