// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"navix.sh/atoll/pkg/problem"
)

// sandboxed gives a page an opaque origin, because at a path it shares its host with exec and with every other sandbox. A host of its own
// (Handler.Domain) does not need this.
const sandboxed = "sandbox allow-downloads allow-forms allow-modals allow-orientation-lock allow-pointer-lock allow-popups " +
	"allow-presentation allow-scripts"

// originWide are response headers that would affect the whole host, or other sandboxes on it.
var originWide = []string{
	"Alt-Svc", "Clear-Site-Data", "Expect-Ct", "Nel", "Public-Key-Pins", "Public-Key-Pins-Report-Only", "Report-To",
	"Service-Worker-Allowed", "Set-Cookie2", "Strict-Transport-Security",
}

// OriginWide returns the names of response headers that would affect a whole host.
func OriginWide() []string { return slices.Clone(originWide) }

// confine limits a sandbox's response to its own path and origin.
func confine(r *http.Response) error {
	f := forwardedOf(r.Request.Context())
	r.Header.Del(problem.Header)
	for _, name := range originWide {
		r.Header.Del(name)
	}
	if f.base != "" {
		r.Header.Add("Content-Security-Policy", sandboxed)
	}
	text := r.Header.Get("Location")
	r.Header.Del("Location") // all of them: some clients follow the second where the first is empty
	if text != "" {
		if to := f.redirect(r.Request.URL, text); to != "" {
			r.Header.Set("Location", to)
		}
	}
	cookies := r.Cookies()
	r.Header.Del("Set-Cookie")
	for _, cookie := range cookies {
		cookie.Domain = ""
		cookie.Path = f.base + path.Join("/", cookie.Path)
		r.Header.Add("Set-Cookie", cookie.String())
	}
	return nil
}

// redirect rewrites the target of a redirect. A target on this host, at any port, is moved below the port's path, because a client may
// repeat its request there with its credentials for Atoll. redirect drops a target that it cannot parse, or whose host clients parse
// differently.
func (f forwarded) redirect(from *url.URL, text string) string {
	ref, err := url.Parse(text)
	if err != nil {
		return ""
	}
	to := from.ResolveReference(ref)
	host, agreed := hostOf(to.Host)
	own, _ := hostOf(f.host)
	inside, outside := strings.EqualFold(to.Host, from.Host), host == own
	switch {
	case to.Opaque != "" || !agreed: // browsers take https:/v1 for a path on this host
		return ""
	case !inside && !outside:
		return text
	}
	at := to.EscapedPath()
	if outside {
		if below, ok := strings.CutPrefix(at, f.base+"/"); ok {
			at = "/" + below
		}
	}
	if clean, err := url.PathUnescape(at); err != nil || slices.ContainsFunc(strings.Split(clean, "/"), dots) {
		at = (&url.URL{Path: path.Join("/", clean)}).EscapedPath() // browsers treat %2e as a dot
	}
	suffix := url.URL{RawQuery: to.RawQuery, ForceQuery: to.ForceQuery, Fragment: to.Fragment, RawFragment: to.RawFragment}
	return f.base + "/" + strings.TrimLeft(at, "/") + suffix.String()
}

// hostOf returns the host of HOST[:PORT] in canonical form, and whether all clients parse it as that host. Some clients map letters of
// other alphabets to ASCII, and numbers such as 127.1 to an address.
func hostOf(authority string) (host string, agreed bool) {
	host = strings.ToLower(strings.TrimRight((&url.URL{Host: authority}).Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String(), true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == "" || last[0] <= '9' && strings.Trim(last, "0123456789abcdefx") == "" {
		return host, false
	}
	return host, !strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII })
}

func dots(segment string) bool { return segment == "." || segment == ".." }

// final drops informational responses, because their headers cannot be confined.
type final struct{ http.ResponseWriter }

func (f final) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is for http.ResponseController.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }
