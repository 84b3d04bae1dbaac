// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/outcome"
)

// To try the image of a build, the gateway claims sandboxes that have it, whose nodes then pull it. The claims are the caller's, with keys
// derived from the build. So only the claims exist between the client's calls, and any replica can look up their state.
const (
	// BuildTimeout bounds how long a node may pull an image, and how long a build's claim waits for a Pod.
	BuildTimeout = 5 * time.Minute
	// buildLifetime ends the sandboxes of builds whose clients no longer ask.
	buildLifetime = BuildTimeout + time.Minute
	// firstWord is how long the first call of a build waits for an error.
	firstWord = 5 * time.Second
	// MaxBuildSandboxes bounds Options.BuildSandboxes.
	MaxBuildSandboxes = 16
)

// The states of a Template. The template of a build that names no image is ready immediately.
const (
	Building = "building"
	Failed   = "error"
)

// buildKey returns the claim key of a build's i-th sandbox.
func buildKey(build string, i int) string { return fmt.Sprintf("e2b-build-%s-%d", build, i) }

// warm starts to try an image. If an error is known soon, it returns the error, and no claim is left.
func (g *Gateway) warm(r *http.Request, t *Template) error {
	r.Header.Del(keyHeader) // the claims have their own
	t.State, t.Sandboxes = Building, g.opts.BuildSandboxes
	namespace, env := envOf(t.Env)
	claim := func(ctx context.Context, i int) error {
		_, err := g.send(ctx, r, http.MethodPost, sandboxesPath, map[string]any{
			"namespace": namespace, "env": env, "image": t.Image, "claimKey": buildKey(t.Build, i), "wait": "ASSIGNED",
			"startupTimeout": seconds(int64(BuildTimeout / time.Second)), "maxLifetime": seconds(int64(buildLifetime / time.Second)),
			"idleTimeout": "0s", "metadata": map[string]string{"e2b-build": t.Build}, "noQueue": i > 0,
		})
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), firstWord)
	defer cancel()
	for i := range t.Sandboxes {
		err := claim(ctx, i)
		switch {
		case err == nil || i == 0 && ctx.Err() != nil && r.Context().Err() == nil:
			// It has a Pod, or waits for one.
		case i == 0:
			return err
		default: // no more Pods are idle, or the time is over
			t.Sandboxes = i
			if ctx.Err() != nil {
				t.Sandboxes++ // this claim may have a Pod
			}
			return nil
		}
	}
	return nil
}

// cool releases the remaining claims of a build.
func (g *Gateway) cool(r *http.Request, t *Template) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), initTimeout)
	defer cancel()
	for i := range t.Sandboxes {
		if _, err := g.send(ctx, r, http.MethodDelete, claimPath(t, i), nil); err != nil && !isMissing(err) {
			g.opts.Log.Info("A sandbox of a template build was not released, yet", "template", t.Name, "error", err.Error())
		}
	}
}

func claimPath(t *Template, i int) string {
	namespace, _ := envOf(t.Env)
	return "/v1/claims/" + buildKey(t.Build, i) + "?" + url.Values{"namespace": {namespace}}.Encode()
}

func isMissing(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.status == http.StatusNotFound
}

// look reads the claims of a build and sets the state of the template.
func (g *Gateway) look(r *http.Request, t *Template) error {
	states := make([]warming, t.Sandboxes)
	for i := range states {
		claim := &sandboxv1.Claim{}
		err := g.call(r, http.MethodGet, claimPath(t, i), nil, claim)
		if err != nil && !isMissing(err) {
			return err
		}
		states[i] = warmingOf(claim, err != nil)
	}
	t.State, t.Reason = settle(states)
	return nil
}

// warming is the state of one sandbox of a build.
type warming struct {
	over, ran bool
	reason    string // why it did not run
}

// warmingOf derives the state of a sandbox from its claim.
func warmingOf(claim *sandboxv1.Claim, missing bool) warming {
	sandbox := claim.GetSandbox()
	switch {
	case missing:
		return warming{over: true, reason: "the build's outcome is not known any more; build it again"}
	case claim.GetState() == sandboxv1.Claim_RUNNING, sandbox.GetStartedAt() != nil:
		return warming{over: true, ran: true}
	case claim.GetState() == sandboxv1.Claim_ENDED:
		return warming{over: true, reason: cmp.Or(outcome.Cause(sandbox), claim.GetMessage(), "its sandbox ended before it ran")}
	case claim.GetState() == sandboxv1.Claim_EXPIRED:
		return warming{over: true, reason: cmp.Or(claim.GetMessage(), fmt.Sprintf("no Pod was idle for it within %s", BuildTimeout))}
	default:
		return warming{}
	}
}

// settle returns the state of a build. Only its first sandbox can make it fail: the others are for more nodes, and their failures are no
// fault of the image.
func settle(states []warming) (state, reason string) {
	if first := states[0]; first.over && !first.ran {
		return Failed, first.reason
	}
	for _, s := range states {
		if !s.over {
			return Building, ""
		}
	}
	return "", ""
}
