// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// HubReader reads a hub. All fields but Hub are required.
type HubReader struct {
	Clusters  sandboxv1.ClustersClient
	Envs      sandboxv1.EnvsClient
	Sandboxes sandboxv1.SandboxesClient
	Claims    sandboxv1.ClaimsClient
	Hub       sandboxv1.HubClient
}

// NewHubReader returns a reader for the hub at the other end of a connection.
func NewHubReader(conn grpc.ClientConnInterface) *HubReader {
	return &HubReader{
		Clusters: sandboxv1.NewClustersClient(conn), Envs: sandboxv1.NewEnvsClient(conn),
		Sandboxes: sandboxv1.NewSandboxesClient(conn), Claims: sandboxv1.NewClaimsClient(conn), Hub: sandboxv1.NewHubClient(conn),
	}
}

const (
	pageSize = 1000
	// envsPage is smaller, because an Env lists all its clusters with their members, and a response of more than 4 MiB fails.
	envsPage = 100
	// maxAsked bounds how many claim keys, and how many sandboxes, one look reads individually.
	maxAsked = 500
)

func (r *HubReader) look(ctx context.Context) (*Hub, error) {
	h := &Hub{}
	// The first call includes the setup of the connection.
	clusters, err := r.Clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	h.Clusters = clusters.GetClusters()
	if err := r.lookAtStatus(ctx, h); err != nil {
		return nil, err
	}
	for token := ""; ; {
		begin := time.Now()
		page, err := r.Envs.ListEnvs(ctx, &sandboxv1.ListEnvsRequest{PageSize: envsPage, PageToken: token})
		if err != nil {
			return nil, fmt.Errorf("listing Envs: %w", err)
		}
		h.Slowest = max(h.Slowest, time.Since(begin))
		h.Envs = append(h.Envs, page.GetEnvs()...)
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for token := ""; ; {
		page, err := r.Sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{PageSize: pageSize, PageToken: token})
		if err != nil {
			return nil, fmt.Errorf("listing sandboxes: %w", err)
		}
		for _, sandbox := range page.GetSandboxes() {
			if sandbox.GetStaleAge() == nil { // otherwise its cluster is silent
				h.Sandboxes = append(h.Sandboxes, sandbox)
			}
		}
		h.Silent = append(h.Silent, page.GetUnreachableClusters()...)
		if token = page.GetNextPageToken(); token == "" {
			return h, nil
		}
	}
}

func (r *HubReader) lookAtStatus(ctx context.Context, h *Hub) error {
	if r.Hub == nil {
		return nil
	}
	begin := time.Now()
	told, err := r.Hub.GetHub(ctx, &sandboxv1.GetHubRequest{})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented, codes.PermissionDenied:
		return nil // an older hub, a key without this permission, or a worker's local API
	default:
		return fmt.Errorf("asking for the hub's status: %w", err)
	}
	h.Status = told
	if now := told.GetTime(); now != nil {
		h.Clock = clockAt(now.AsTime(), begin)
	}
	replicas, err := r.Hub.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented { // an older hub
		return fmt.Errorf("listing the hub's replicas: %w", err)
	}
	h.Replicas = replicas.GetReplicas()
	return nil
}

// lookUp reads the claim keys of live Pods, and the sandboxes that have gone since the previous snapshot.
func (r *HubReader) lookUp(ctx context.Context, previous, s *Snapshot) error {
	s.Hub.Claims, s.Hub.Ended = map[string]*sandboxv1.Claim{}, map[string]*sandboxv1.Sandbox{}
	for _, c := range s.live() {
		hash, request := hubKey(c.pod)
		if request == nil || len(s.Hub.Claims) == maxAsked {
			continue
		}
		claim, err := r.Claims.GetClaim(ctx, request)
		if known, err := responded(err); err != nil {
			return fmt.Errorf("asking for a claim key: %w", err)
		} else if known {
			s.Hub.Claims[hash] = claim
		}
	}
	if previous == nil {
		return nil
	}
	for id := range vanished(previous, s) {
		if len(s.Hub.Ended) == maxAsked {
			return nil
		}
		record, err := r.Sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
		if known, err := responded(err); err != nil {
			return fmt.Errorf("asking for a sandbox: %w", err)
		} else if known {
			s.Hub.Ended[id] = record
		}
	}
	return nil
}

// responded reports whether the hub responded, be it with NotFound. It is not an error if a cluster does not respond.
func responded(err error) (bool, error) {
	switch status.Code(err) {
	case codes.OK, codes.NotFound:
		return true, nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.PermissionDenied, codes.Unimplemented:
		return false, nil
	default:
		return false, err
	}
}

var errNoMetrics = errors.New("no metrics of Atoll are there")

// scrape reads the counters and gauges at a URL, each summed over its labels.
func scrape(ctx context.Context, url string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading metrics: %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	values, ours := map[string]float64{}, false
	for name, family := range families {
		ours = ours || strings.HasPrefix(name, "atoll_")
		if sum, ok := sum(family); ok {
			values[name] = sum
		}
	}
	if !ours {
		return nil, fmt.Errorf("reading metrics: %w", errNoMetrics)
	}
	return values, nil
}

func sum(family *dto.MetricFamily) (total float64, ok bool) {
	for _, m := range family.GetMetric() {
		switch family.GetType() {
		case dto.MetricType_GAUGE:
			total += m.GetGauge().GetValue()
		case dto.MetricType_COUNTER:
			total += m.GetCounter().GetValue()
		default:
			return 0, false
		}
	}
	return total, true
}
