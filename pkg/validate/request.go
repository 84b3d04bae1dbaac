// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/problem"
)

// Bounds of a request.
const (
	MaxStartupTimeout = 24 * time.Hour
	maxClaimKey       = 128
	maxName           = 128
	maxLabels         = 64
	maxMetadata       = 32 << 10 // bytes of keys and values
	maxClusters       = 64
	maxImage          = 512
	maxVariables      = 1000
	maxVariableBytes  = 64 << 10 // of names and values
	maxVariableFaults = 16
)

var (
	clusterID = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`)
	// The grammar of image references: [host[:port]/]path[:tag][@digest].
	imageReference = regexp.MustCompile(`^(?:[a-zA-Z0-9][-.a-zA-Z0-9]*(?::[0-9]+)?/)?` +
		`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*` +
		`(?::[a-zA-Z0-9_][-.a-zA-Z0-9_]{0,127})?(?:@[a-zA-Z][a-zA-Z0-9]*(?:[-_+.][a-zA-Z][a-zA-Z0-9]*)*:[0-9a-fA-F]{32,})?$`)
)

// IsClusterID reports whether a text is a valid cluster id.
func IsClusterID(s string) bool { return clusterID.MatchString(s) }

// ValidClusterID describes what IsClusterID accepts.
const ValidClusterID = "a ClusterID: up to 30 of a-z, 0-9 and -, beginning with a letter"

// Faults collects everything that is wrong with a request, so that the caller sees all of it at once.
type Faults []problem.Field

// Add adds a fault.
func (f *Faults) Add(field, value, valid string) {
	*f = append(*f, problem.Field{Field: field, Value: value, Valid: valid})
}

// Check adds a fault unless ok.
func (f *Faults) Check(ok bool, field, value, valid string) {
	if !ok {
		f.Add(field, value, valid)
	}
}

// Err returns the faults as an error, or nil if there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return problem.InvalidFields(f...)
}

// Create returns the faults of a request for a sandbox. Its namespace must be set.
func Create(r *sandboxv1.CreateSandboxRequest) Faults {
	var f Faults
	f.names(r)
	f.claim(r)
	f.Tenant("team", r.GetTeam())
	f.Tenant("user", r.GetUser())
	f.maps(r)
	f.environment(r)
	f.belongings(r)
	f.durations(r)
	return append(f, hook.Faults(r.GetPostStartHooks())...)
}

// RefuseCredentialsUsage describes the flag of hub and worker that applies Credentials.
const RefuseCredentialsUsage = "refuse post-start hooks whose headers hold a credential (Authorization, Cookie, X-Api-Key and the like) " +
	"as text, not by valueFrom"

// Credentials returns a fault for each header of a hook that holds a credential as text.
func Credentials(r *sandboxv1.CreateSandboxRequest) Faults {
	var f Faults
	actions, _ := hook.Parse(r.GetPostStartHooks())
	for _, path := range hook.Literals(actions) {
		f.Add(path, "", "valueFrom with a secretKeyRef: credentials as text are refused here")
	}
	return f
}

func (f *Faults) names(r *sandboxv1.CreateSandboxRequest) {
	f.Namespace(r.GetNamespace())
	f.Check(IsName(r.GetEnv()), "env", r.GetEnv(), "the name of an Env: a DNS name of at most 253 characters")
	f.Check(r.GetImage() == "" || len(r.GetImage()) <= maxImage && imageReference.MatchString(r.GetImage()),
		"image", Clip(r.GetImage()), "an image reference such as registry.example/team/app:v1, at most 512 characters")
	f.Check(r.GetMultiplier() >= 0, "multiplier", strconv.Itoa(int(r.GetMultiplier())), "0 or more")
	for field, value := range map[string]string{"instanceType": r.GetInstanceType(), "scalingGroup": r.GetScalingGroup()} {
		f.Check(len(value) <= validation.DNS1123SubdomainMaxLength && printable(value), field, Clip(value),
			"at most 253 printable characters")
	}
	f.Check(len(r.GetClusters()) <= maxClusters, "clusters", fmt.Sprintf("%d of them", len(r.GetClusters())), "at most 64")
	for i, c := range r.GetClusters() {
		field := fmt.Sprintf("clusters[%d]", i)
		f.Check(IsClusterID(c), field, Clip(c), ValidClusterID)
		f.Check(!slices.Contains(r.GetClusters()[:i], c), field, Clip(c), "each cluster once")
	}
	f.Check(!r.GetRequireClusters() || len(r.GetClusters()) > 0, "requireClusters", "true", "false, where no clusters are named")
}

func (f *Faults) claim(r *sandboxv1.CreateSandboxRequest) {
	if r.GetClaimKey() != "" {
		f.ClaimKey(r.GetClaimKey())
	}
	_, known := sandboxv1.CreateSandboxRequest_Wait_name[int32(r.GetWait())]
	f.Check(known, "wait", r.GetWait().String(), "READY, ASSIGNED or NONE")
	f.Check(r.GetWait() != sandboxv1.CreateSandboxRequest_NONE || r.GetClaimKey() != "", "wait", "NONE",
		"READY or ASSIGNED, where no claimKey is given: nothing else could name the sandbox later")
}

// Tenant checks a team or a user.
func (f *Faults) Tenant(field, value string) {
	f.Check(len(value) <= maxName && printable(value), field, Clip(value), "at most 128 printable characters")
}

func (f *Faults) maps(r *sandboxv1.CreateSandboxRequest) {
	*f = append(*f, Labels(r.GetLabels())...)
	size := 0
	for key, value := range r.GetMetadata() {
		size += len(key) + len(value)
		f.Check(key != "", "metadata", Clip(value), "keys that are not empty")
	}
	f.Check(size <= maxMetadata, "metadata", fmt.Sprintf("%d bytes", size), "at most 32768 bytes of keys and values")
}

// environment checks names and sizes. Faults contain no values, which may be secret.
func (f *Faults) environment(r *sandboxv1.CreateSandboxRequest) {
	env := r.GetEnvVars()
	if len(env) == 0 {
		return
	}
	f.Check(len(env) <= maxVariables, "envVars", fmt.Sprintf("%d of them", len(env)), "at most 1000")
	size := 0
	for _, name := range sortedKeys(env) {
		size += len(name) + len(env[name])
		if len(*f) < maxVariableFaults {
			f.Check(len(validation.IsEnvVarName(name)) == 0, "envVars", Clip(name),
				"names of letters, digits, _, - and ., not beginning with a digit")
			f.Check(!strings.ContainsRune(env[name], 0), "envVars["+Clip(name)+"]", "a value with a NUL", "text without NUL")
		}
	}
	f.Check(size <= maxVariableBytes, "envVars", fmt.Sprintf("%d bytes", size), "at most 65536 bytes of names and values")
}

// Labels returns the faults of a claim's labels.
func Labels(labels map[string]string) Faults {
	var f Faults
	f.Check(len(labels) <= maxLabels, "labels", fmt.Sprintf("%d of them", len(labels)), "at most 64")
	for _, key := range sortedKeys(labels) {
		field, value := "labels["+Clip(key)+"]", labels[key]
		f.Check(!strings.Contains(key, "/") && len(validation.IsQualifiedName(key)) == 0, field, Clip(key),
			"a label name of at most 63 characters without a prefix: it stands on the Pod below "+v1alpha1.TenantLabelPrefix)
		f.Check(len(validation.IsValidLabelValue(value)) == 0, field, Clip(value), "a Kubernetes label value")
	}
	return f
}

func (f *Faults) durations(r *sandboxv1.CreateSandboxRequest) {
	if d := r.GetStartupTimeout(); d != nil {
		f.Check(d.IsValid() && d.AsDuration() > 0 && d.AsDuration() <= MaxStartupTimeout, "startupTimeout", DurationValue(d),
			"a duration such as \"90s\", more than 0 and at most 24h")
	}
	*f = append(*f, Timeouts(r)...)
}

// Namespace checks the name of a namespace.
func (f *Faults) Namespace(value string) {
	f.Check(len(validation.IsDNS1123Label(value)) == 0, "namespace", Clip(value), "a namespace: a DNS label of at most 63 characters")
}

// ClaimKey checks a claim key.
func (f *Faults) ClaimKey(key string) {
	ok := len(key) >= 1 && len(key) <= maxClaimKey
	for i := range len(key) {
		ok = ok && key[i] >= 0x20 && key[i] <= 0x7e
	}
	f.Check(ok, "claimKey", Clip(key), "1 to 128 printable ASCII characters")
}

// SandboxID checks the format of an id.
func (f *Faults) SandboxID(id string) {
	_, ok := ClusterOf(id)
	f.Check(ok, "id", Clip(id), "a sandbox id: a lowercase ULID, -, and a ClusterID")
}

// ClusterOf returns the cluster that created a sandbox id.
func ClusterOf(id string) (string, bool) {
	const ulidLen = 26
	if len(id) < ulidLen+2 || id[ulidLen] != '-' || !IsClusterID(id[ulidLen+1:]) {
		return "", false
	}
	for i := range ulidLen {
		if !strings.ContainsRune("0123456789abcdefghjkmnpqrstvwxyz", rune(id[i])) {
			return "", false
		}
	}
	return id[ulidLen+1:], true
}

// IsName reports whether a text is a valid name of an Env or a pool.
func IsName(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// printable also rejects NUL, which separates the parts of a key hash.
func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Clip truncates the part of a request that an error contains.
func Clip(s string) string { return clip.Text(s, 160) }

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
