// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/net/http2"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// redirects leads the sandbox's callers to other places of the hub.
func redirects(ctx context.Context, a *attacker) error {
	targets := []string{
		"/v1/sandboxes", "http://" + a.API + "/v1/clusters/west:forget", "//" + a.API + "/v1/hub", "../../../../clusters",
		"/../../../%2e%2e/clusters",
		"http:/v1/clusters", "\\/v1\\clusters",
	}
	var mu sync.Mutex
	next := 0
	port, err := a.serve(ctx, func(_ context.Context, w io.Writer) {
		mu.Lock()
		to := targets[next%len(targets)]
		next++
		mu.Unlock()
		_, _ = io.WriteString(w, "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: "+to+"\r\n\r\n")
	})
	if err != nil {
		return err
	}
	by := a.client()
	base := "/v1/sandboxes/" + a.Sandbox + "/ports/" + port + "/"
	swarm(ctx, 4, func(int) {
		response, err := a.request(ctx, by, "GET", a.port(port)+"a/b", a.Tokens["mallory"], "")
		if err != nil {
			return
		}
		defer response.Body.Close()
		at, err := response.Location()
		switch {
		case err != nil:
			a.tell("no location")
		case at.Host != a.API:
			a.tell("location elsewhere")
		case strings.HasPrefix(at.EscapedPath(), base) && !strings.Contains(strings.ToLower(at.EscapedPath()), "%2e"):
			a.tell("location below the port")
		default:
			a.tell("location outside: " + at.String())
		}
	})
	return nil
}

// hostHeaders sends headers that would count for the whole host.
func hostHeaders(ctx context.Context, a *attacker) error {
	wide := []string{"Service-Worker-Allowed", "Clear-Site-Data", "Alt-Svc", "Strict-Transport-Security", "Report-To", "Nel"}
	port, err := a.serve(ctx, once("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+strings.Join(wide, ": x\r\n")+": x\r\n"+
		"Set-Cookie: a=b; Path=/; Domain=localhost\r\nSet-Cookie: c=d; Path=/v1/../\r\n\r\n"))
	if err != nil {
		return err
	}
	by := a.client()
	swarm(ctx, 4, func(int) {
		response, err := a.request(ctx, by, "GET", a.port(port), a.Tokens["mallory"], "")
		if err != nil {
			return
		}
		defer response.Body.Close()
		what := "confined"
		for _, name := range wide {
			if response.Header.Get(name) != "" {
				what = "escaped: " + name
			}
		}
		for _, cookie := range response.Cookies() {
			if cookie.Domain != "" || !strings.HasPrefix(cookie.Path, "/v1/sandboxes/"+a.Sandbox+"/ports/") {
				what = "escaped: " + cookie.Raw
			}
		}
		switch {
		case response.StatusCode != http.StatusOK && what == "confined":
			what = described(response) // the hub's own, where it did not reach the port
		case !strings.Contains(response.Header.Get("Content-Security-Policy"), "sandbox"):
			what = "escaped: no Content-Security-Policy"
		}
		a.tell(what)
	})
	return nil
}

// unreadLists asks for lists on connections that are not read.
func unreadLists(ctx context.Context, a *attacker) error {
	request := calling(sandboxv1.Envs_ListEnvs_FullMethodName, "authorization", "Bearer "+a.Tokens["mallory"])
	swarm(ctx, 32, func(int) {
		conn, ok := a.connectDeaf(ctx, a.API)
		if !ok {
			return
		}
		defer conn.Close()
		c, err := unheard(conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		for i := uint32(0); err == nil && i < 1<<20; i++ {
			a.attempts.Add(1)
			if err = c.writeCall(2*i+1, request); err == nil {
				err = c.out.Flush()
			}
		}
		a.tell(hungUp(err))
	})
	return nil
}
