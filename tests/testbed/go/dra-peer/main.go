// A driver for resource claims, for comparison with braid. It is as small as Kubernetes' helper library for drivers allows:
// it offers one device of its node, prepares claims without any work, and attaches nothing. It runs until its standard
// input ends, and leaves no socket, folder or ResourceSlice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	driver = "peer.braid.dev"
	device = "eth1"
	// Longest time until the ResourceSlice is deleted.
	limit = 10 * time.Second
)

func main() {
	node := flag.String("node", "", "name of the node")
	kubeconfig := flag.String("kubeconfig", "", "path of the administrator's kubeconfig")
	flag.Parse()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := run(ctx, *node, *kubeconfig); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, node, kubeconfig string) (err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The defaults, 5 requests a second and 10 at once, would delay a burst of claims.
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	folder := filepath.Join(kubeletplugin.KubeletPluginsDir, driver)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	helper, err := kubeletplugin.Start(ctx, plugin{}, kubeletplugin.DriverName(driver),
		kubeletplugin.NodeName(node), kubeletplugin.KubeClient(client))
	if err != nil {
		return fmt.Errorf("start the driver: %w", err)
	}
	defer helper.Stop()
	if err := awaitRegistration(ctx, helper); err != nil {
		return err
	}
	if err := helper.PublishResources(ctx, resources(node)); err != nil {
		return fmt.Errorf("publish the device: %w", err)
	}
	<-ctx.Done()
	// Otherwise the helper would write the slice again.
	helper.Stop()
	return deleteSlices(client, node)
}

// awaitRegistration returns when the kubelet has registered the driver. A pod that needs a driver before its registration
// waits a minute for the kubelet's next try.
func awaitRegistration(ctx context.Context, helper *kubeletplugin.Helper) error {
	for ctx.Err() == nil {
		if status := helper.RegistrationStatus(); status != nil {
			if !status.PluginRegistered {
				return fmt.Errorf("the kubelet refuses the driver: %s", status.Error)
			}
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ctx.Err()
}

// resources returns the node's device: many claims share it, each with a part of its bandwidth.
func resources(node string) resourceslice.DriverResources {
	shared, name := true, device
	least, usual := resource.MustParse("1M"), resource.MustParse("10M")
	bandwidth := resourceapi.DeviceCapacity{
		Value: resource.MustParse("1G"),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    &usual,
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &least},
		},
	}
	slice := resourceslice.Slice{Devices: []resourceapi.Device{{
		Name:                     device,
		AllowMultipleAllocations: &shared,
		Attributes:               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"ifName": {StringValue: &name}},
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"bandwidth": bandwidth},
	}}}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{slice}}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

func deleteSlices(client kubernetes.Interface, node string) error {
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	selector := fmt.Sprintf("spec.driver=%s,spec.nodeName=%s", driver, node)
	slices := client.ResourceV1().ResourceSlices()
	return slices.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector})
}

// plugin answers the kubelet.
type plugin struct{}

func (plugin) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult)
	for _, claim := range claims {
		log.Printf("prepare %s/%s", claim.Namespace, claim.Name)
		var result kubeletplugin.PrepareResult
		for _, share := range claim.Status.Allocation.Devices.Results {
			if share.Driver == driver {
				result.Devices = append(result.Devices, kubeletplugin.Device{
					Requests:   []string{share.Request},
					PoolName:   share.Pool,
					DeviceName: share.Device,
					ShareID:    share.ShareID,
				})
			}
		}
		results[claim.UID] = result
	}
	return results, nil
}

func (plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error)
	for _, claim := range claims {
		log.Printf("unprepare %s/%s", claim.Namespace, claim.Name)
		results[claim.UID] = nil
	}
	return results, nil
}

func (plugin) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		os.Exit(1)
	}
}
