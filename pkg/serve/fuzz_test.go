// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// I14: what the check lets through takes a bounded number of messages in memory, as JSON and in wire format.
func FuzzShape(f *testing.F) {
	wire, err := proto.Marshal(&sandboxv1.CreateSandboxRequest{Env: "demo", Labels: map[string]string{"a": "b"}, Clusters: []string{"east"}})
	must.Succeed(f, err)
	f.Add(wire)
	f.Add([]byte(`{"env":"demo","labels":{"a":"b"},"postStartHooks":[{"exec":{"command":["ls"]}}],"clusters":["east","we\"st"]}`))
	f.Add([]byte(`{"postStartHooks":[` + strings.Repeat(`{},`, 99) + `{}]}`))
	f.Add([]byte(`{"postStartHooks":[{"a":` + strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70) + `}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m := &sandboxv1.CreateSandboxRequest{}
		if checkProto(body, m.ProtoReflect().Descriptor()) == nil && proto.Unmarshal(body, m) == nil {
			wantBounded(t, m)
		}
		m = &sandboxv1.CreateSandboxRequest{}
		if checkJSON(body) == nil && protojson.Unmarshal(body, m) == nil {
			wantBounded(t, m)
		}
	})
}

func wantBounded(t *testing.T, m proto.Message) {
	t.Helper()
	messages, depth := measure(m.ProtoReflect(), 1)
	if messages > 1+3*maxValues || depth > 1+maxNesting {
		t.Errorf("%d messages in %d levels were let through", messages, depth)
	}
}

// measure counts messages, entries of maps included, and their levels.
func measure(m protoreflect.Message, level int) (messages, depth int) {
	messages, depth = 1, level
	inner := func(v protoreflect.Message) {
		n, d := measure(v, level+1)
		messages, depth = messages+n, max(depth, d)
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				messages++
				if field.MapValue().Message() != nil {
					inner(v.Message())
				}
				return true
			})
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				inner(v.List().Get(i).Message())
			}
		default:
			inner(v.Message())
		}
		return true
	})
	return messages, depth
}

// A request passes without credentials only under a loopback name, and not from a page of another origin, as net/url reads them.
func FuzzWeb(f *testing.F) {
	f.Add("GET", "localhost:8080", "", "", "", "")
	f.Add("POST", "[::1]:8080", "http://[::1]:8080", "same-origin", "", "")
	f.Add("GET", ".:8080", "", "", "", "")
	f.Add("GET", "127.0.0.1.evil.example", "null", "cross-site", "navigate", "document")
	f.Add("POST", "8000-01h-east.localhost:80", "https://evil.example#@localhost:80", "same-site", "cors", "empty")
	f.Fuzz(func(t *testing.T, method, host, origin, site, mode, dest string) {
		r := &http.Request{Method: method, Host: host, Header: http.Header{}}
		for name, value := range map[string]string{"Origin": origin, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if (Web{}).named(false, r) == nil && host != "" {
			if u, err := url.Parse("http://" + host + "/"); err == nil && u.Host == host && u.Hostname() != "" {
				name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
				if ip, err := netip.ParseAddr(name); name != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) {
					t.Errorf("host %q passes, which is %q", host, name)
				}
			}
		}
		if SameOrigin(r) != nil {
			return
		}
		if u, err := url.Parse(origin); origin != "" && (err != nil || !strings.EqualFold(u.Host, host)) {
			t.Errorf("origin %q passes at host %q", origin, host)
		}
		if site == "cross-site" && (method != http.MethodGet && method != http.MethodHead || dest != "document") {
			t.Errorf("%s with Sec-Fetch-Site %q, Sec-Fetch-Dest %q passes", method, site, dest)
		}
	})
}
