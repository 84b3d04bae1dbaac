// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/pkg/problem"
)

// Web holds the host names under which browsers reach a server. A page that a user opens must not be able to use the user's access. The
// browser sends the origin of a request and the host name it used, and the server checks both.
type Web struct {
	// Hosts are host names of the server, in addition to loopback names. If empty, a server that requires credentials accepts every name.
	Hosts []string
	// SandboxDomain gives each port of a sandbox its own host, PORT-ID.DOMAIN, and so its own origin.
	SandboxDomain string
}

// loopbackDomain is the domain of servers on loopback: browsers resolve every name below it to this machine.
const loopbackDomain = "localhost"

// Bind registers the flags for the names.
func (w *Web) Bind(flags *pflag.FlagSet) {
	flags.StringSliceVar(&w.Hosts, "allowed-hosts", nil,
		"host names by which the API is reached, besides localhost and loopback addresses; default: any with API keys, else none")
	flags.StringVar(&w.SandboxDomain, "sandbox-domain", "",
		"domain below which each port of a sandbox is served at a host of its own, PORT-ID.DOMAIN; default: localhost without API keys, else "+
			"none")
}

// Validate names every invalid name.
func (w Web) Validate() error {
	for _, host := range w.Hosts {
		if len(validation.IsDNS1123Subdomain(host)) > 0 && !isIP(host) {
			return fmt.Errorf("--allowed-hosts: %q is not valid, want host names in lower case or IP addresses, without ports", host)
		}
	}
	if w.SandboxDomain != "" && len(validation.IsDNS1123Subdomain(w.SandboxDomain)) > 0 {
		return fmt.Errorf("--sandbox-domain: %q is not valid, want a DNS name in lower case", w.SandboxDomain)
	}
	return nil
}

// Access says whether a server requires credentials.
type Access bool

// A server is open to all callers, or requires credentials.
const (
	Open          Access = false
	Authenticated Access = true
)

// Domain returns the parent domain of the sandboxes' own hosts, or "" if there is none.
func (w Web) Domain(to Access) string {
	if w.SandboxDomain == "" && to == Open {
		return loopbackDomain
	}
	return w.SandboxDomain
}

// named rejects requests for a host name that is not one of the server's. The owner of another name could point it at this server, and a
// page of that name could then read responses that only pages of this server may read.
func (w Web) named(to Access, r *http.Request) error {
	host := hostOf(r.Host)
	unnamed := r.Host == "" || strings.HasPrefix(r.Host, ":") // "." is a name, though none of ours
	known := unnamed || isLoopback(host) || slices.Contains(w.Hosts, host) || to == Authenticated && len(w.Hosts) == 0
	if known {
		return nil
	}
	return problem.New(problem.Forbidden, "this server is not known as %q, want localhost, a loopback address or one of --allowed-hosts",
		clipped(host))
}

// SandboxHost parses the host of a sandbox's port, PORT-ID.DOMAIN. No host matches an empty domain.
func SandboxHost(host, domain string) (port, id string, ok bool) {
	label, ok := strings.CutSuffix(hostOf(host), "."+domain)
	if !ok || domain == "" {
		return "", "", false
	}
	port, id, ok = strings.Cut(label, "-")
	_, err := strconv.ParseUint(port, 10, 16)
	return port, id, ok && err == nil && !strings.Contains(id, ".")
}

// hostOf is the name of a Host header, without its port.
func hostOf(header string) string {
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == loopbackDomain || err == nil && ip.Unmap().IsLoopback()
}

// SameOrigin rejects requests that a browser sends for a page of another origin. It accepts a link that a user follows.
func SameOrigin(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	origin := r.Header.Get("Origin")
	if origin != "" {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return problem.New(problem.Forbidden, "pages of %s have no access here, only those of %s", clipped(origin), clipped(r.Host))
		}
	}
	if site == "" || site == "same-origin" || site == "none" || followed(r) {
		return nil
	}
	return problem.New(problem.Forbidden, "pages of other origins have no access here (Sec-Fetch-Site: %s), only those of %s", clipped(site),
		clipped(r.Host))
}

// followed reports whether the request is a user opening a page.
func followed(r *http.Request) bool {
	return Safe(r.Method) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// Safe reports whether a method changes nothing.
func Safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }
