// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/distribution/reference"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Template is a name that a build registered: an image for claims of an Env.
type Template struct {
	Name  string `json:"name"`
	Team  string `json:"team"` // owner of the template; empty: callers without a team
	Build string `json:"build"`
	Env   string `json:"env"`             // NAME or NAMESPACE/NAME
	Image string `json:"image,omitempty"` // empty: the image of the Env
	// State is the state of the build: Building, Failed, or "" if it is ready.
	State     string    `json:"state,omitempty"`
	Reason    string    `json:"reason,omitempty"` // of Failed
	Begun     time.Time `json:"begun,omitzero"`
	Sandboxes int       `json:"sandboxes,omitempty"` // number of sandboxes in which the build tries the image
}

// Templates stores templates.
type Templates interface {
	// Find returns the templates with a name, of all teams.
	Find(ctx context.Context, name string) ([]Template, error)
	// Room returns an error if t cannot be added because there are too many.
	Room(ctx context.Context, t Template) error
	// Put adds a template, or replaces the one with the same name and team.
	Put(ctx context.Context, t Template) error
	// Settle stores the state of a template, unless another build has replaced the template.
	Settle(ctx context.Context, t Template) error
	// Delete removes a template if it exists.
	Delete(ctx context.Context, name, team string) error
}

var validTemplate = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,127}$`)

const maxImage = 512

const validTemplateText = "1 to 128 of a-z, 0-9, - and _, beginning with a letter or digit"

// build is a client's request for a build.
type build struct {
	FromImage         string         `json:"fromImage"`
	FromTemplate      string         `json:"fromTemplate"`
	FromImageRegistry map[string]any `json:"fromImageRegistry"`
	Steps             []any          `json:"steps"`
	StartCmd          string         `json:"startCmd"`
	ReadyCmd          string         `json:"readyCmd"`
}

const buildAdvice = "build the image elsewhere and name it with fromImage alone"

// check rejects a build that is anything but an unmodified image or Env.
func (b *build) check() error {
	switch {
	case len(b.Steps) > 0 || b.StartCmd != "" || b.ReadyCmd != "":
		return absent("steps of a template", buildAdvice)
	case len(b.FromImageRegistry) > 0:
		return absent("credentials of a registry", "the Env's template has imagePullSecrets")
	case b.FromTemplate != "" && b.FromImage == "":
		return nil
	case b.FromImage == "" || b.FromTemplate != "":
		return invalid("fromImage", clipped(b.FromImage), "the name of an image, or fromTemplate with the name of an Env")
	}
	if _, err := reference.ParseNormalizedNamed(b.FromImage); err != nil || len(b.FromImage) > maxImage {
		return invalid("fromImage", clipped(b.FromImage), "the name of an image, such as registry.example/python:3")
	}
	return nil
}

// teamFor returns the caller's team, or an error if the caller may not create sandboxes of an Env.
func (g *Gateway) teamFor(r *http.Request, env string) (string, error) {
	namespace, name := envOf(env)
	said := &sandboxv1.CheckAccessResponse{}
	ask := map[string]any{"verb": "create", "resource": "sandboxes"}
	if name != "" {
		ask["namespace"], ask["env"] = namespace, name
	}
	if err := g.call(r, http.MethodPost, "/v1/access:check", ask, said); err != nil {
		return "", err
	}
	if !said.GetAllowed() {
		return "", problem.New(problem.Forbidden, "no sandboxes of Env %s: %s", env, said.GetReason())
	}
	return said.GetTeam(), nil
}

// newTemplate serves the first call of a build. It stores nothing.
func (g *Gateway) newTemplate(r *http.Request) (response, error) {
	var in struct {
		Name  string   `json:"name"`
		Alias string   `json:"alias"` // older name of the field
		Tags  []string `json:"tags"`
	}
	if err := read(r, &in); err != nil {
		return response{}, err
	}
	if in.Name == "" {
		in.Name = in.Alias
	}
	if !validTemplate.MatchString(in.Name) {
		return response{}, invalid("name", clipped(in.Name), validTemplateText)
	}
	if len(in.Tags) > 0 {
		return response{}, absent("tags of a template", "give each build a name of its own")
	}
	if _, err := g.teamFor(r, ""); err != nil {
		return response{}, err
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return response{status: http.StatusAccepted, body: map[string]any{
		"templateID": in.Name, "buildID": hex.EncodeToString(id), "public": false, "names": []string{in.Name}, "aliases": []string{in.Name},
		"tags": []string{},
	}}, nil
}

// build registers an image for claims of the Env for builds, and makes nodes pull it.
func (g *Gateway) build(r *http.Request) (response, error) {
	name, id := r.PathValue("template"), r.PathValue("build")
	if !validTemplate.MatchString(name) || !validID.MatchString(id) {
		return response{}, problem.New(problem.NotFound, "template %q has no build %q", clipped(name), clipped(id))
	}
	var in build
	if err := read(r, &in); err != nil {
		return response{}, err
	}
	if err := in.check(); err != nil {
		return response{}, err
	}
	t := Template{Name: name, Build: id, Env: g.opts.BuildEnv, Image: in.FromImage}
	if in.FromTemplate != "" {
		from, err := g.template(r, in.FromTemplate)
		if err != nil {
			return response{}, err
		}
		t.Env, t.Image = from.Env, from.Image
	}
	if t.Env == "" {
		return response{}, absent("images of builds", "the operator names the Env whose claims may have them with --e2b-build-env")
	}
	var err error
	if t.Team, err = g.teamFor(r, t.Env); err != nil {
		return response{}, err
	}
	t.Begun = g.opts.Now().UTC()
	if t.Image != "" && g.opts.BuildSandboxes > 0 {
		// Put checks for room too, but by then sandboxes would have tried the image.
		if err := g.opts.Templates.Room(r.Context(), t); err != nil {
			return response{}, err
		}
		if err := g.warm(r, &t); err != nil {
			return response{}, err
		}
	}
	if err := g.opts.Templates.Put(r.Context(), t); err != nil {
		g.cool(r, &t)
		return response{}, err
	}
	return response{status: http.StatusAccepted}, nil
}

// template resolves the templateID of a create: a template of the caller's team, else an Env.
func (g *Gateway) template(r *http.Request, id string) (Template, error) {
	found, err := g.own(r, id)
	if found == nil {
		found = &Template{Name: id, Env: id}
	}
	return *found, err
}

// own returns the template of the caller's team, or nil if there is none.
func (g *Gateway) own(r *http.Request, name string) (*Template, error) {
	if g.opts.Templates == nil || !validTemplate.MatchString(name) {
		return nil, nil
	}
	all, err := g.opts.Templates.Find(r.Context(), name)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	team, err := g.teamFor(r, "")
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Team == team {
			return &all[i], nil
		}
	}
	return nil, nil
}

// known is own, but returns an error if there is no template.
func (g *Gateway) known(r *http.Request) (*Template, error) {
	name := r.PathValue("template")
	t, err := g.own(r, name)
	if err == nil && t == nil {
		err = problem.New(problem.NotFound, "there is no template %q that a build has made", clipped(name))
	}
	return t, err
}

func (g *Gateway) alias(r *http.Request) (response, error) {
	t, err := g.known(r)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusOK, body: map[string]any{"templateID": t.Name, "public": false}}, nil
}

func (g *Gateway) buildStatus(r *http.Request) (response, error) {
	t, err := g.known(r)
	if err != nil {
		return response{}, err
	}
	if id := r.PathValue("build"); id != t.Build {
		return response{}, problem.New(problem.NotFound, "template %s has no build %q", t.Name, clipped(id))
	}
	if t.State == Building {
		if err := g.look(r, t); err != nil {
			return response{}, err
		}
		if t.State != Building {
			if err := g.opts.Templates.Settle(r.Context(), *t); err != nil {
				return response{}, err
			}
			g.cool(r, t)
		}
	}
	out := map[string]any{
		"templateID": t.Name, "buildID": t.Build, "status": cmp.Or(t.State, "ready"), "logs": []string{}, "logEntries": []string{},
	}
	if t.Reason != "" {
		out["reason"] = map[string]any{"message": t.Reason}
	}
	return response{status: http.StatusOK, body: out}, nil
}

func (g *Gateway) deleteTemplate(r *http.Request) (response, error) {
	t, err := g.known(r)
	if err != nil {
		return response{}, err
	}
	if t.State == Building {
		g.cool(r, t)
	}
	return response{status: http.StatusNoContent}, g.opts.Templates.Delete(r.Context(), t.Name, t.Team)
}

// envOf splits NAMESPACE/NAME. A NAME alone is in the namespace default.
func envOf(id string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(id, "/"); ok {
		return namespace, name
	}
	return "default", id
}

// routeTemplates registers the routes for builds, if templates are stored.
func (g *Gateway) routeTemplates(handle func(pattern string, f func(*http.Request) (response, error))) {
	const advice = "an Env is a template; apply a SandboxEnv"
	refused := func(*http.Request) (response, error) { return response{}, absent("this call about templates", advice) }
	if g.opts.Templates == nil {
		refused = func(*http.Request) (response, error) {
			return response{}, absent("templates of builds", "a worker keeps none; ask a hub, or apply a SandboxEnv")
		}
		handle("POST /v3/templates", refused)
	} else {
		handle("POST /v3/templates", g.newTemplate)
		handle("POST /v2/templates", g.newTemplate)
		handle("POST /v2/templates/{template}/builds/{build}", g.build)
		handle("GET /templates/{template}/builds/{build}/status", g.buildStatus)
		handle("GET /templates/aliases/{template}", g.alias)
		handle("DELETE /templates/{template}", g.deleteTemplate)
	}
	for _, path := range []string{"/templates", "/templates/", "/v2/templates", "/v2/templates/", "/v3/templates"} {
		handle(path, refused)
	}
}
