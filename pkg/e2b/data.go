// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/validate"
)

const maxProblem = 64 << 10

// statesOf returns the values of a parameter, which may be repeated or comma-separated.
func statesOf(values []string) map[string]bool {
	out := map[string]bool{}
	for _, value := range values {
		for _, state := range strings.Split(value, ",") {
			if state != "" {
				out[state] = true
			}
		}
	}
	return out
}

// destination is the target of a request to a sandbox.
type destination struct {
	id, port, key string
	daemon        bool
	base          string // path of the port in the public API
}

type destinationKey struct{}

// toSandbox proxies a request to a sandbox's port, on behalf of the caller to whom its token belongs.
func (g *Gateway) toSandbox(w http.ResponseWriter, r *http.Request, id, port string) {
	number, err := strconv.ParseUint(cmp.Or(port, strconv.Itoa(envd.Port)), 10, 16)
	if err != nil || number == 0 {
		refuse(w, invalid("E2b-Sandbox-Port", clipped(port), "1 to 65535"))
		return
	}
	if !validID.MatchString(id) {
		refuse(w, problem.New(problem.NotFound, "sandbox %q not found", clipped(id)))
		return
	}
	key, err := g.sealer.open(id, cmp.Or(r.Header.Get("X-Access-Token"), r.Header.Get("E2b-Traffic-Access-Token")))
	if err != nil {
		refuse(w, problem.New(problem.Unauthenticated, "the header X-Access-Token does not have this sandbox's token; without one, a "+
			"sandbox's ports and signed URLs are not served"))
		return
	}
	serve.AdmitCaller(r.Context(), "sandbox "+id)
	port = strconv.FormatUint(number, 10)
	to := destination{id: id, port: port, key: key, daemon: number == envd.Port, base: sandboxesPath + "/" + id + "/ports/" + port}
	_ = http.NewResponseController(w).EnableFullDuplex() // a port may respond before it has read the whole request
	g.data.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), destinationKey{}, to)))
}

func (g *Gateway) newProxy() http.Handler {
	return &httputil.ReverseProxy{
		Transport: g.transport, FlushInterval: reach.FlushAfter,
		Rewrite: func(p *httputil.ProxyRequest) {
			to, _ := p.In.Context().Value(destinationKey{}).(destination)
			g.rewrite(p, to)
		},
		ModifyResponse: func(r *http.Response) error {
			to, _ := r.Request.Context().Value(destinationKey{}).(destination)
			return confine(r, to)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, &refusal{status: http.StatusBadGateway, message: "the sandbox did not respond: " + validate.Clip(err.Error())})
		},
	}
}

// rewrite converts the request to one for the public API. No credentials of the caller reach the sandbox.
func (g *Gateway) rewrite(p *httputil.ProxyRequest, to destination) {
	user, _, _ := p.In.BasicAuth()
	header := p.Out.Header
	for _, name := range []string{
		"Authorization", "X-Access-Token", "E2b-Traffic-Access-Token", "X-Api-Key", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "Origin",
		sandboxd.UserHeader,
		"Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User",
	} {
		header.Del(name)
	}
	if to.daemon {
		header.Set(sandboxd.TokenHeader, sandboxd.Token(g.opts.Key, to.id))
		if user != "" {
			header.Set(sandboxd.UserHeader, user)
		}
	}
	path := cmp.Or(p.In.URL.EscapedPath(), "/")
	root, err := url.Parse(base(p.In))
	if err != nil {
		return // the address belongs to a connection
	}
	p.Out.URL.Scheme, p.Out.URL.Host = root.Scheme, root.Host
	p.Out.URL.Path, p.Out.URL.RawPath = to.base+path, ""
	if unescaped, err := url.PathUnescape(path); err == nil {
		p.Out.URL.Path, p.Out.URL.RawPath = to.base+unescaped, to.base+path
	}
	p.Out.URL.RawQuery = p.In.URL.RawQuery // the proxy has removed what Go does not parse, such as a;b
	authorize(p.Out, to.key)
}

// confine removes headers with which a sandbox could affect an origin that it shares, and converts errors to E2B's form.
func confine(r *http.Response, to destination) error {
	for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Alt-Svc", "Strict-Transport-Security", "Service-Worker-Allowed"} {
		r.Header.Del(name)
	}
	if location, ok := strings.CutPrefix(r.Header.Get("Location"), to.base); ok {
		r.Header.Set("Location", cmp.Or(location, "/"))
	}
	if r.Header.Get(problem.Header) == "" {
		return nil
	}
	r.Header.Del(problem.Header)
	text, err := io.ReadAll(io.LimitReader(r.Body, maxProblem))
	if err != nil {
		return err
	}
	_ = r.Body.Close()
	var detail struct{ Detail string }
	_ = json.Unmarshal(text, &detail)
	if r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusServiceUnavailable || r.StatusCode == http.StatusGatewayTimeout {
		r.StatusCode = http.StatusBadGateway // E2B clients take this for a sandbox that is gone
	}
	text, err = json.Marshal(map[string]any{"code": r.StatusCode, "message": detail.Detail, "sandboxId": to.id, "port": to.port})
	if err != nil {
		return err
	}
	r.Status = ""
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	r.ContentLength, r.Body = int64(len(text)), io.NopCloser(bytes.NewReader(text))
	return nil
}
