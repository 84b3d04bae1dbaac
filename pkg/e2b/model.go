// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// daemonVersion is the version of E2B's daemon whose services package sandboxd/internal/daemon implements.
const daemonVersion = "0.5.7"

const (
	defaultTimeout = 300 // seconds
	maxTimeout     = 24 * 3600 * 365
	maxVariables   = 256
	maxVariable    = 64 << 10 // bytes of all variables together
)

var validID = regexp.MustCompile(`^[0-9a-z][0-9a-z-]{0,62}$`)

// newSandbox is a request to create a sandbox.
type newSandbox struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *int64            `json:"timeout"` // seconds
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	AutoPause           bool              `json:"autoPause"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             map[string]any    `json:"network"`
	VolumeMounts        []any             `json:"volumeMounts"`
	MCP                 map[string]any    `json:"mcp"`
	IAM                 map[string]any    `json:"iam"`
}

// check rejects what is invalid or not supported.
func (n *newSandbox) check() error {
	if n.TemplateID == "" {
		return invalid("templateID", n.TemplateID, "the name of an Env, or NAMESPACE/NAME")
	}
	if n.Timeout != nil && (*n.Timeout < 1 || *n.Timeout > maxTimeout) {
		return invalid("timeout", fmt.Sprint(*n.Timeout), fmt.Sprintf("1 to %d seconds", maxTimeout))
	}
	size := 0
	for name, value := range n.EnvVars {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return invalid("envVars", name, "names without = and NUL, and values without NUL")
		}
		size += len(name) + len(value)
	}
	if len(n.EnvVars) > maxVariables || size > maxVariable {
		return invalid("envVars", fmt.Sprintf("%d variables of %d bytes", len(n.EnvVars), size),
			fmt.Sprintf("at most %d, of %d bytes", maxVariables, maxVariable))
	}
	switch {
	case n.AutoPause:
		return absent("autoPause", "pause the sandbox yourself; its memory stays")
	case !supportedNetwork(n.Network):
		return absent("network but denyOut of all addresses", "choose an Env whose annotation egress opens what the sandbox needs")
	case len(n.VolumeMounts) > 0:
		return absent("volumeMounts", "put volumes into the Env's template")
	case len(n.MCP) > 0:
		return absent("mcp", "start the server with a command")
	case len(n.IAM) > 0:
		return absent("iam", "pass credentials by envVars")
	}
	return nil
}

// supportedNetwork reports whether a sandbox can have the requested network: its ports require a token, and either the egress that the
// Env's annotation opens is allowed, or none.
func supportedNetwork(network map[string]any) bool {
	for name, value := range network {
		switch name {
		case "allowPublicTraffic":
			if value != false {
				return false
			}
		case "denyOut":
			if !deniesAll(value) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// deniesAll reports whether a list of addresses is exactly 0.0.0.0/0.
func deniesAll(list any) bool {
	addresses, _ := list.([]any)
	return len(addresses) == 1 && addresses[0] == "0.0.0.0/0"
}

// deniesEgress reports whether the sandbox may not connect to anything.
func (n *newSandbox) deniesEgress() bool {
	return n.AllowInternetAccess != nil && !*n.AllowInternetAccess || deniesAll(n.Network["denyOut"])
}

// request returns the request for the public API. The sandbox ends only by its timeout.
func (n *newSandbox) request(template Template) map[string]any {
	namespace, env := envOf(template.Env)
	timeout := int64(defaultTimeout)
	if n.Timeout != nil {
		timeout = *n.Timeout
	}
	out := map[string]any{
		"namespace": namespace, "env": env, "metadata": n.Metadata, "maxLifetime": seconds(timeout), "idleTimeout": "0s",
	}
	if template.Image != "" {
		out["image"] = template.Image
	}
	if n.deniesEgress() {
		out["denyEgress"] = true
	}
	return out
}

func seconds(n int64) string { return fmt.Sprintf("%ds", n) }

// grant is the response that a client needs to use a sandbox.
type grant struct {
	SandboxID       string `json:"sandboxID"`
	TemplateID      string `json:"templateID"`
	ClientID        string `json:"clientID"`
	EnvdVersion     string `json:"envdVersion"`
	EnvdAccessToken string `json:"envdAccessToken"`
	// TrafficAccessToken is the same token, for ports other than the daemon's.
	TrafficAccessToken string `json:"trafficAccessToken"`
	Domain             string `json:"domain,omitempty"`
}

// details describe a sandbox, in lists and on its own.
type details struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	ClientID    string            `json:"clientID"`
	EnvdVersion string            `json:"envdVersion"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	State       string            `json:"state"`
	CPUCount    int64             `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata"`
	Domain      string            `json:"domain,omitempty"`
	// EnvdAccessToken is set if the sandbox was requested on its own, not in lists.
	EnvdAccessToken string `json:"envdAccessToken,omitempty"`
}

func (g *Gateway) details(s *sandboxv1.Sandbox) details {
	d := details{
		SandboxID: s.GetId(), TemplateID: templateOf(s), ClientID: s.GetClusterId(), EnvdVersion: daemonVersion,
		StartedAt: s.GetClaimedAt().AsTime(), State: "running", Metadata: s.GetMetadata(), Domain: g.opts.Domain,
	}
	d.EndAt = d.StartedAt.Add(maxTimeout * time.Second)
	if s.GetMaxLifetime() != nil {
		d.EndAt = d.StartedAt.Add(s.GetMaxLifetime().AsDuration())
	}
	if paused(s) {
		d.State = "paused"
	}
	if cpu, err := resource.ParseQuantity(s.GetCpu()); err == nil {
		d.CPUCount = cpu.Value() // rounds up
	}
	if memory, err := resource.ParseQuantity(s.GetMemory()); err == nil {
		d.MemoryMB = memory.Value() >> 20
	}
	return d
}

func paused(s *sandboxv1.Sandbox) bool {
	state := s.GetPause().GetState()
	return state == sandboxv1.Pause_PAUSED || state == sandboxv1.Pause_PAUSING
}

func templateOf(s *sandboxv1.Sandbox) string {
	if s.GetNamespace() == "default" {
		return s.GetEnv()
	}
	return s.GetNamespace() + "/" + s.GetEnv()
}
