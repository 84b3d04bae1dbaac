// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
)

// Bounds of a request.
const (
	DefaultStartupTimeout = 2 * time.Minute
	maxStartupTimeout     = 24 * time.Hour
	maxClaimKey           = 128
	maxName               = 128
	maxLabels             = 64
	maxMetadata           = 32 << 10 // bytes of keys and values
	maxClusters           = 64
	maxImage              = 512
)

var (
	clusterID = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`)
	// The grammar of image references: [host[:port]/]path[:tag][@digest].
	imageReference = regexp.MustCompile(`^(?:[a-zA-Z0-9][-.a-zA-Z0-9]*(?::[0-9]+)?/)?` +
		`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*` +
		`(?::[a-zA-Z0-9_][-.a-zA-Z0-9_]{0,127})?(?:@[a-zA-Z][a-zA-Z0-9]*(?:[-_+.][a-zA-Z][a-zA-Z0-9]*)*:[0-9a-fA-F]{32,})?$`)
	reservedDomains = []string{"agentbox.navix.sh", "agentbox.io", "agents.navix.sh", "scheduling.navix.sh"}
)

const validClusterID = "a ClusterID: up to 30 of a-z, 0-9 and -, beginning with a letter"

// faults collects everything that is wrong with a request, so that the caller hears of it at once.
type faults []problem.Field

func (f *faults) add(field, value, valid string) {
	*f = append(*f, problem.Field{Field: field, Value: value, Valid: valid})
}

func (f *faults) check(ok bool, field, value, valid string) {
	if !ok {
		f.add(field, value, valid)
	}
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return problem.InvalidFields(f...)
}

// resolve validates a create request and answers it with every default filled in, without its wait mode. The result is
// what goes to the worker and what a retry with the same key is compared to.
func resolve(in *sandboxv1.CreateSandboxRequest, p Principal) (*sandboxv1.CreateSandboxRequest, error) {
	var f faults
	if in.GetNamespace() == "" {
		in = proto.CloneOf(in)
		in.Namespace = "default"
	}
	f.names(in)
	f.claim(in)
	f.tenant(in)
	f.maps(in)
	f.durations(in)
	f = append(f, hook.Faults(in.GetPostStartHooks())...)
	if err := f.err(); err != nil {
		return nil, withKey(err, in.GetClaimKey())
	}
	team, err := own("team", in.GetTeam(), p.Team)
	if err != nil {
		return nil, err
	}
	user, err := own("user", in.GetUser(), p.User)
	if err != nil {
		return nil, err
	}
	if err := p.CheckNamespace(in.GetNamespace()); err != nil {
		return nil, err
	}
	out := proto.CloneOf(in)
	out.Team, out.User, out.Wait = team, user, sandboxv1.CreateSandboxRequest_WAIT_UNSPECIFIED
	return out, nil
}

func (f *faults) names(r *sandboxv1.CreateSandboxRequest) {
	f.namespace(r.GetNamespace())
	f.check(isSubdomain(r.GetEnv()), "env", r.GetEnv(), "the name of an Env: a DNS name of at most 253 characters")
	f.check(r.GetImage() == "" || len(r.GetImage()) <= maxImage && imageReference.MatchString(r.GetImage()),
		"image", clip(r.GetImage()), "an image reference such as registry.example/team/app:v1, at most 512 characters")
	f.check(r.GetMultiplier() >= 0, "multiplier", strconv.Itoa(int(r.GetMultiplier())), "0 or more")
	for field, value := range map[string]string{"instanceType": r.GetInstanceType(), "scalingGroup": r.GetScalingGroup()} {
		f.check(len(value) <= validation.DNS1123SubdomainMaxLength && printable(value), field, clip(value),
			"at most 253 printable characters")
	}
	f.check(len(r.GetClusters()) <= maxClusters, "clusters", fmt.Sprintf("%d of them", len(r.GetClusters())), "at most 64")
	for i, c := range r.GetClusters() {
		field := fmt.Sprintf("clusters[%d]", i)
		f.check(clusterID.MatchString(c), field, clip(c), validClusterID)
		f.check(!slices.Contains(r.GetClusters()[:i], c), field, clip(c), "each cluster once")
	}
	f.check(!r.GetRequireClusters() || len(r.GetClusters()) > 0, "requireClusters", "true", "false, where no clusters are named")
}

func (f *faults) claim(r *sandboxv1.CreateSandboxRequest) {
	if r.GetClaimKey() != "" {
		f.claimKey(r.GetClaimKey())
	}
	_, known := sandboxv1.CreateSandboxRequest_Wait_name[int32(r.GetWait())]
	f.check(known, "wait", r.GetWait().String(), "READY, ASSIGNED or NONE")
	f.check(r.GetWait() != noWait || r.GetClaimKey() != "", "wait", "NONE",
		"READY or ASSIGNED, where no claimKey is given: nothing else could name the sandbox later")
}

func (f *faults) tenant(r *sandboxv1.CreateSandboxRequest) {
	for field, value := range map[string]string{"team": r.GetTeam(), "user": r.GetUser()} {
		f.check(len(value) <= maxName && printable(value), field, clip(value), "at most 128 printable characters")
	}
}

func (f *faults) maps(r *sandboxv1.CreateSandboxRequest) {
	f.check(len(r.GetLabels()) <= maxLabels, "labels", fmt.Sprintf("%d of them", len(r.GetLabels())), "at most 64")
	for _, key := range sortedKeys(r.GetLabels()) {
		field, value := "labels["+clip(key)+"]", r.GetLabels()[key]
		f.check(!reserved(key), field, clip(key), "a label key outside "+strings.Join(reservedDomains, ", "))
		f.check(len(validation.IsQualifiedName(key)) == 0, field, clip(key), "a Kubernetes label key")
		f.check(len(validation.IsValidLabelValue(value)) == 0, field, clip(value), "a Kubernetes label value")
	}
	size := 0
	for key, value := range r.GetMetadata() {
		size += len(key) + len(value)
		f.check(key != "", "metadata", clip(value), "keys that are not empty")
	}
	f.check(size <= maxMetadata, "metadata", fmt.Sprintf("%d bytes", size), "at most 32768 bytes of keys and values")
}

func reserved(label string) bool {
	domain, _, prefixed := strings.Cut(label, "/")
	return prefixed && slices.ContainsFunc(reservedDomains, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}

func (f *faults) durations(r *sandboxv1.CreateSandboxRequest) {
	if d := r.GetStartupTimeout(); d != nil {
		f.check(d.IsValid() && d.AsDuration() > 0 && d.AsDuration() <= maxStartupTimeout, "startupTimeout", serve.DurationValue(d),
			"a duration such as \"90s\", more than 0 and at most 24h")
	}
	*f = append(*f, serve.TimeoutFaults(r)...)
}

func checkUpdate(r *sandboxv1.UpdateSandboxRequest) error {
	var f faults
	f.sandboxID(r.GetId())
	return append(f, serve.UpdateFaults(r)...).err()
}

func (f *faults) namespace(value string) {
	f.check(len(validation.IsDNS1123Label(value)) == 0, "namespace", clip(value), "a namespace: a DNS label of at most 63 characters")
}

func (f *faults) claimKey(key string) {
	ok := len(key) >= 1 && len(key) <= maxClaimKey
	for i := range len(key) {
		ok = ok && key[i] >= 0x20 && key[i] <= 0x7e
	}
	f.check(ok, "claimKey", clip(key), "1 to 128 printable ASCII characters")
}

func (f *faults) sandboxID(id string) {
	_, ok := clusterOf(id)
	f.check(ok, "id", clip(id), "a sandbox id: a lowercase ULID, -, and a ClusterID")
}

// clusterOf answers the cluster that minted a sandbox id.
func clusterOf(id string) (string, bool) {
	const ulidLen = 26
	if len(id) < ulidLen+2 || id[ulidLen] != '-' || !clusterID.MatchString(id[ulidLen+1:]) {
		return "", false
	}
	for i := range ulidLen {
		if !strings.ContainsRune("0123456789abcdefghjkmnpqrstvwxyz", rune(id[i])) {
			return "", false
		}
	}
	return id[ulidLen+1:], true
}

func isSubdomain(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// printable also keeps NUL out, which separates the parts of a key hash.
func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// clip keeps an error from repeating a request of megabytes.
func clip(s string) string {
	const most = 160
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:most], "�") + "…"
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// withKey names the claim key in an error.
func withKey(err error, key string) error {
	if err == nil || key == "" {
		return err
	}
	e := *problem.FromError(err)
	e.ClaimKey = key
	return &e
}
