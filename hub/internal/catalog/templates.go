// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/apimachinery/pkg/util/json"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/visibility"
)

// Templates implements the service Templates.
type Templates struct {
	sandboxv1.UnimplementedTemplatesServer
	*Service
}

// visible reports whether the caller sees a template: by the template's visibility, or because all teams are the caller's own.
func visible(ctx context.Context, o manifest.Object) bool {
	p := principal.From(ctx)
	if p.AllTeams && p.User == "" {
		return true
	}
	data, err := o.Encode()
	if err != nil {
		return false
	}
	var t struct {
		Spec struct {
			Visibility *v1alpha1.TemplateVisibility `json:"visibility"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return false
	}
	return visibility.Caller{Team: p.Team, User: p.User}.Sees(t.Spec.Visibility)
}

// checkVisible returns an error for an Env whose author does not see its template. Workers check the same by the Env's namespace.
func (s *Service) checkVisible(ctx context.Context, o manifest.Object) error {
	if o.Kind() != manifest.EnvKind {
		return nil
	}
	if t := s.latest(ctx, templateRef(o.Template())); t != nil && !t.removed() && !visible(ctx, t.object) {
		return problem.InvalidField("spec.templateRef.name", o.Template(), "a template whose spec.visibility has the caller's team and user")
	}
	return nil
}

// hidden returns the error of a missing template if the caller does not see the template of the record. r may be nil.
func hidden(ctx context.Context, r *record) error {
	if r != nil && !r.removed() && !visible(ctx, r.object) {
		return unknown(r.Ref)
	}
	return nil
}

// GetTemplate returns a template that the caller sees.
func (t Templates) GetTemplate(ctx context.Context, in *sandboxv1.GetTemplateRequest) (*sandboxv1.Template, error) {
	r, err := t.find(ctx, templateRef(in.GetName()))
	if err != nil {
		return nil, err
	}
	if !visible(ctx, r.object) { // the same error as for a missing template
		return nil, unknown(r.Ref)
	}
	return t.full(ctx, r)
}

// summary returns a template without its manifest.
func (t Templates) summary(ctx context.Context, r *record) *sandboxv1.Template {
	return &sandboxv1.Template{Name: r.Ref.Name, Catalog: t.state.Load().show(r, seenParts(ctx, r.Ref))}
}

// full returns a template with its manifest.
func (t Templates) full(ctx context.Context, r *record) (*sandboxv1.Template, error) {
	text, err := toStruct(r.Manifest)
	if err != nil {
		return nil, err
	}
	out := t.summary(ctx, r)
	out.Template = text
	return out, nil
}

// ListTemplates pages by name.
func (t Templates) ListTemplates(ctx context.Context, in *sandboxv1.ListTemplatesRequest) (*sandboxv1.ListTemplatesResponse, error) {
	if size := in.GetPageSize(); size < 0 || size > maxPage {
		return nil, problem.InvalidField("pageSize", fmt.Sprint(size), "0 to 1000")
	}
	var all []*record
	for _, r := range t.state.Load().records {
		if r.Ref.Kind == manifest.TemplateKind && !r.removed() && r.Ref.Name > in.GetPageToken() && visible(ctx, r.object) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *record) int { return strings.Compare(a.Ref.Name, b.Ref.Name) })
	out := &sandboxv1.ListTemplatesResponse{}
	if size := int(cmp.Or(in.GetPageSize(), defaultPage)); len(all) > size {
		all = all[:size]
		out.NextPageToken = all[size-1].Ref.Name
	}
	for _, r := range all {
		out.Templates = append(out.Templates, t.summary(ctx, r))
	}
	return out, nil
}

// PutTemplate writes a template.
func (t Templates) PutTemplate(ctx context.Context, in *sandboxv1.PutTemplateRequest) (*sandboxv1.Template, error) {
	ref := templateRef(in.GetName())
	before := t.latest(ctx, ref) // once; because the caller has to see what is replaced
	if err := errors.Join(t.writable(ref), hidden(ctx, before)); err != nil {
		return nil, err
	}
	o, err := t.read(ctx, ref, in.GetTemplate(), before)
	if err != nil {
		return nil, err
	}
	r, err := t.put(ctx, ref, o, before, in.GetRevision())
	if err != nil {
		return nil, err
	}
	return t.full(ctx, r) // not the state's record, which may be a later one of another replica
}

// DeleteTemplate removes a template.
func (t Templates) DeleteTemplate(ctx context.Context, in *sandboxv1.DeleteTemplateRequest) (*emptypb.Empty, error) {
	r, err := t.find(ctx, templateRef(in.GetName()))
	if err != nil {
		return nil, err
	}
	if !visible(ctx, r.object) { // as in GetTemplate
		return nil, unknown(r.Ref)
	}
	if err := t.removable(ctx, r.Ref); err != nil {
		return nil, err
	}
	_, err = t.put(ctx, r.Ref, nil, r, 0)
	return &emptypb.Empty{}, err
}

// ListTemplateRevisions returns the last revisions of a template.
func (t Templates) ListTemplateRevisions(
	ctx context.Context, in *sandboxv1.ListTemplateRevisionsRequest,
) (*sandboxv1.ListRevisionsResponse, error) {
	ref := templateRef(in.GetName())
	r := t.latest(ctx, ref) // once, as in PutTemplate
	if err := hidden(ctx, r); err != nil {
		return nil, err
	}
	out, err := t.revisions(ctx, ref, r)
	if err == nil && r.removed() && !slices.ContainsFunc(out.GetRevisions(), hasManifest) {
		return nil, unknown(ref) // it was hidden from the caller
	}
	return out, err
}

func hasManifest(r *sandboxv1.CatalogRevision) bool { return r.GetManifest() != nil }
