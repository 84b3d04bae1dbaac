// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"navix.sh/atoll/api/envd"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
)

const (
	sandboxesPath = "/v1/sandboxes"
	// keyHeader has the claim key of a create.
	keyHeader = "Idempotency-Key"
	// initTimeout bounds how long the daemon of a running sandbox may take to respond.
	initTimeout = 20 * time.Second
	initPause   = 200 * time.Millisecond
	maxPage     = 100
	// pausedFor is the lifetime of a paused sandbox in seconds.
	pausedFor = 30 * 24 * 3600
)

// read decodes a body. An empty body leaves the zero value.
func read(r *http.Request, into any) error {
	err := json.NewDecoder(r.Body).Decode(into)
	if err != nil && !errors.Is(err, io.EOF) {
		return problem.New(problem.Invalid, "the body is not valid: %s", err)
	}
	return nil
}

// pathOf returns the path of a sandbox in the public API.
func pathOf(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !validID.MatchString(id) {
		return "", problem.New(problem.NotFound, "sandbox %q not found", clipped(id))
	}
	return sandboxesPath + "/" + id, nil
}

func clipped(text string) string { return clip.Text(text, 63) }

// create claims a sandbox and passes its environment to the daemon. It releases a sandbox whose daemon does not respond, unless the claim
// has a key; because an earlier create may have returned the sandbox, and it may be in use.
func (g *Gateway) create(r *http.Request) (response, error) {
	// Version 0 of the SDK uses another daemon, with JSON-RPC over WebSocket.
	if version := r.Header.Get("Package_version"); strings.HasPrefix(version, "0.") && r.Header.Get("Publisher") == "e2b" {
		return response{}, absent("version "+clipped(version)+" of the SDK", "use version 1.0 or newer")
	}
	var in newSandbox
	if err := read(r, &in); err != nil {
		return response{}, err
	}
	if err := in.check(); err != nil {
		return response{}, err
	}
	template, err := g.template(r, in.TemplateID)
	if err != nil {
		return response{}, err
	}
	sandbox := &sandboxv1.Sandbox{}
	if err := g.call(r, http.MethodPost, sandboxesPath, in.request(template), sandbox); err != nil {
		return response{}, busy(err)
	}
	if err := g.init(r, sandbox.GetId(), in.EnvVars); err != nil {
		if r.Header.Get(keyHeader) != "" {
			return response{}, err // the sandbox ends by its timeout
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), initTimeout)
		defer cancel()
		if _, gone := g.send(late, r, http.MethodDelete, sandboxesPath+"/"+sandbox.GetId(), nil); gone != nil {
			g.opts.Log.Info("A sandbox without a daemon was not released", "sandbox", sandbox.GetId(), "error", gone.Error())
		}
		return response{}, err
	}
	return g.admit(r, sandbox, http.StatusCreated), nil
}

// busy converts a deadline, which means that no Pod was idle in time, to a 503 with Retry-After, because clients treat a 504 as a fault.
func busy(err error) error {
	var late *refusal
	if !errors.As(err, &late) || late.reason != string(problem.Deadline) {
		return err
	}
	return &refusal{http.StatusServiceUnavailable, late.message, cmp.Or(late.retryAfter, "2"), late.reason}
}

// init sets the daemon's token and a claim's environment.
func (g *Gateway) init(r *http.Request, id string, env map[string]string) error {
	ctx, cancel := context.WithTimeout(r.Context(), initTimeout)
	defer cancel()
	daemon := sandboxd.Client{
		HTTP: asCaller{g.client, apiKey(r.Header.Get("X-Api-Key"))}, Base: fmt.Sprintf("%s%s/%s/ports/%d", base(r), sandboxesPath, id, envd.Port),
		Token: sandboxd.Token(g.opts.Key, id),
	}
	absent := false
	for {
		err := daemon.Init(ctx, sandboxd.Defaults{Env: env}, g.opts.Now())
		var refused *sandboxd.StatusError
		if err == nil {
			return nil
		}
		if errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable && refused.Status != http.StatusGatewayTimeout {
			return refusalOf(refused)
		}
		if refused != nil {
			absent = reach.NoDaemon(err)
		}
		select {
		case <-time.After(initPause):
		case <-ctx.Done():
			return reach.NotReached(initTimeout, absent, err)
		}
	}
}

// admit returns the response with which a client can use a sandbox.
func (g *Gateway) admit(r *http.Request, s *sandboxv1.Sandbox, status int) response {
	token := g.token(r, s.GetId())
	return response{status: status, body: grant{
		SandboxID: s.GetId(), TemplateID: templateOf(s), ClientID: s.GetClusterId(), EnvdVersion: daemonVersion, EnvdAccessToken: token,
		TrafficAccessToken: token, Domain: g.opts.Domain,
	}}
}

// token returns the token with which the request's caller can reach a sandbox.
func (g *Gateway) token(r *http.Request, id string) string {
	return g.sealer.seal(id, apiKey(r.Header.Get("X-Api-Key")))
}

// over reports whether a sandbox has ended, or is about to.
func over(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_STOPPING || s.GetPhase() == sandboxv1.Phase_ENDED
}

// live returns the sandbox of a request, or an error if it has ended.
func (g *Gateway) live(r *http.Request) (*sandboxv1.Sandbox, error) {
	path, err := pathOf(r)
	if err != nil {
		return nil, err
	}
	sandbox := &sandboxv1.Sandbox{}
	if err := g.call(r, http.MethodGet, path, nil, sandbox); err != nil {
		return nil, err
	}
	if over(sandbox) {
		return nil, problem.New(problem.NotFound, "sandbox %s has ended", sandbox.GetId())
	}
	return sandbox, nil
}

func (g *Gateway) get(r *http.Request) (response, error) {
	sandbox, err := g.live(r)
	if err != nil {
		return response{}, err
	}
	d := g.details(sandbox)
	d.EnvdAccessToken = g.token(r, sandbox.GetId()) // version 1 of the SDK connects with it
	return response{status: http.StatusOK, body: d}, nil
}

func (g *Gateway) list(r *http.Request) (response, error) {
	q := r.URL.Query()
	size := maxPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return response{}, invalid("limit", text, fmt.Sprintf("1 to %d", maxPage))
		}
		size = n
	}
	to := url.Values{"pageSize": {strconv.Itoa(size)}, "orderBy": {"claimedAt desc"}}
	if q.Get("order") == "asc" {
		to.Set("orderBy", "claimedAt")
	}
	if token := q.Get("nextToken"); token != "" {
		to.Set("pageToken", token)
	}
	wanted, err := url.ParseQuery(q.Get("metadata"))
	if err != nil {
		return response{}, invalid("metadata", q.Get("metadata"), "KEY=VALUE&KEY=VALUE, escaped as in a URL")
	}
	for name, values := range wanted {
		for _, value := range values {
			to.Add("metadataSelector", unescaped(name)+"="+unescaped(value))
		}
	}
	if id := q.Get("template"); id != "" {
		template, err := g.template(r, id)
		if err != nil {
			return response{}, err
		}
		namespace, env := envOf(template.Env)
		to.Set("namespace", namespace)
		to.Set("env", env)
	}
	page := &sandboxv1.ListSandboxesResponse{}
	if err := g.call(r, http.MethodGet, sandboxesPath+"?"+to.Encode(), nil, page); err != nil {
		return response{}, err
	}
	states := statesOf(q["state"])
	out := []details{}
	for _, s := range page.GetSandboxes() {
		if d := g.details(s); !over(s) && (len(states) == 0 || states[d.State]) {
			out = append(out, d)
		}
	}
	answer := response{status: http.StatusOK, body: out}
	if page.GetNextPageToken() != "" {
		answer.header = map[string]string{"X-Next-Token": page.GetNextPageToken()}
	}
	return answer, nil
}

// unescaped unescapes the name or the value of a filter, because clients escape these and then the whole filter again.
func unescaped(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

func (g *Gateway) kill(r *http.Request) (response, error) {
	sandbox, err := g.live(r)
	if err != nil {
		return response{}, err
	}
	if err := g.call(r, http.MethodDelete, sandboxesPath+"/"+sandbox.GetId(), nil, nil); err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, nil
}

// until sets the sandbox to end timeout seconds from now.
func (g *Gateway) until(r *http.Request, s *sandboxv1.Sandbox, timeout int64) error {
	lifetime, err := g.lifetime(s, timeout)
	if err != nil {
		return err
	}
	return g.setLifetime(r, s, lifetime)
}

// extend extends a sandbox's lifetime to timeout seconds from now. It never shortens a lifetime, and never limits an unlimited one.
func (g *Gateway) extend(r *http.Request, s *sandboxv1.Sandbox, timeout int64) error {
	lifetime, err := g.lifetime(s, timeout)
	if err != nil || s.GetMaxLifetime() == nil || s.GetMaxLifetime().GetSeconds() >= lifetime {
		return err
	}
	return g.setLifetime(r, s, lifetime)
}

// lifetime returns the maxLifetime with which a sandbox ends timeout seconds from now.
func (g *Gateway) lifetime(s *sandboxv1.Sandbox, timeout int64) (int64, error) {
	if timeout < 1 || timeout > maxTimeout {
		return 0, invalid("timeout", strconv.FormatInt(timeout, 10), fmt.Sprintf("1 to %d seconds", maxTimeout))
	}
	age := max(g.opts.Now().Sub(s.GetClaimedAt().AsTime()), 0)
	return min(int64((age+time.Second-1)/time.Second)+timeout, maxTimeout), nil
}

func (g *Gateway) setLifetime(r *http.Request, s *sandboxv1.Sandbox, lifetime int64) error {
	return g.call(r, http.MethodPatch, sandboxesPath+"/"+s.GetId(), map[string]any{"maxLifetime": seconds(lifetime)}, nil)
}

// readLive reads the body of a request, and returns the live sandbox in its path.
func (g *Gateway) readLive(r *http.Request, in any) (*sandboxv1.Sandbox, error) {
	if err := read(r, in); err != nil {
		return nil, err
	}
	return g.live(r)
}

func (g *Gateway) setTimeout(r *http.Request) (response, error) {
	var in struct {
		Timeout int64 `json:"timeout"`
	}
	sandbox, err := g.readLive(r, &in)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, g.until(r, sandbox, in.Timeout)
}

func (g *Gateway) refresh(r *http.Request) (response, error) {
	var in struct {
		Duration int64 `json:"duration"`
	}
	sandbox, err := g.readLive(r, &in)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, g.extend(r, sandbox, cmp.Or(in.Duration, 15))
}

// connect returns access to a sandbox. It resumes a paused sandbox, whose timeout then starts again.
func (g *Gateway) connect(r *http.Request) (response, error) {
	var in struct {
		Timeout int64 `json:"timeout"`
	}
	sandbox, err := g.readLive(r, &in)
	if err != nil {
		return response{}, err
	}
	timeout := cmp.Or(in.Timeout, defaultTimeout)
	status, live := http.StatusOK, g.extend
	if paused(sandbox) {
		status = http.StatusCreated
		if sandbox.GetMaxLifetime() != nil {
			live = g.until
		}
		if err := g.call(r, http.MethodPost, sandboxesPath+"/"+sandbox.GetId()+":resume", map[string]any{}, nil); err != nil {
			return response{}, err
		}
	}
	if err := live(r, sandbox, timeout); err != nil {
		return response{}, err
	}
	if err := g.init(r, sandbox.GetId(), nil); err != nil {
		return response{}, err
	}
	return g.admit(r, sandbox, status), nil
}

// pause pauses a sandbox and sets its lifetime to pausedFor, because E2B's timeouts stop during a pause.
func (g *Gateway) pause(r *http.Request) (response, error) {
	sandbox, err := g.live(r)
	if err != nil {
		return response{}, err
	}
	if err := g.extend(r, sandbox, pausedFor); err != nil {
		return response{}, err
	}
	if paused(sandbox) {
		return response{}, &refusal{status: http.StatusConflict, message: "sandbox " + sandbox.GetId() + " is paused already"}
	}
	err = g.call(r, http.MethodPost, sandboxesPath+"/"+sandbox.GetId()+":pause", map[string]any{}, nil)
	if err != nil {
		g.endPause(r, sandbox)
	}
	return response{status: http.StatusNoContent}, err
}

// endPause restores the lifetime of a sandbox that could not be paused. A failed call may still have paused it.
func (g *Gateway) endPause(r *http.Request, before *sandboxv1.Sandbox) {
	if before.GetMaxLifetime() == nil {
		return
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), initTimeout)
	defer cancel()
	r = r.WithContext(late)
	now, err := g.live(r)
	if err == nil && !paused(now) {
		err = g.setLifetime(r, before, before.GetMaxLifetime().GetSeconds())
	}
	if err != nil {
		g.opts.Log.Info("A sandbox that may not be paused kept the lifetime of a pause", "sandbox", before.GetId(), "error", err.Error())
	}
}
