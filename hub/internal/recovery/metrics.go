// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register adds the metrics of a State.
func (s *State) Register(registry prometheus.Registerer, registered func() []string) error {
	err := errors.Join(
		registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atoll_hub_recovering", Help: "Whether claims with a key are refused (1) because the ledger was lost and is not whole yet.",
		}, func() float64 {
			if s.Recovering() {
				return 1
			}
			return 0
		})),
		registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atoll_hub_recovery_clusters_unheard", Help: "Registered clusters whose claim keys may be missing in a ledger that was lost.",
		}, func() float64 { return float64(len(s.Unheard(registered()))) })),
	)
	if err != nil {
		return fmt.Errorf("registering metrics of the recovery: %w", err)
	}
	return nil
}
