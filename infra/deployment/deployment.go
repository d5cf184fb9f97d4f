package deployment

import "time"

// Function is one of Treadle's functions. Its name is that of its folder, its construct, its binary and its log.
type Function struct {
	Name     string
	MemoryMB int
	// Timeout is short, because a message in flight locks its cluster: a crash costs a cluster that long at most, and long work is many
	// short invocations.
	Timeout time.Duration
	// Concurrency bounds the environments that the function's queue starts at once. The local stack bounds all functions by it.
	Concurrency int
	// Queue names the FIFO queue of wake-ups that feeds the function, empty for none; Batch is how many messages it gets at once.
	Queue string
	Batch int
	// Group is the Kubernetes group of the function's role, empty for none. Admin gives it the cluster administrator's access policy.
	Group string
	Admin bool
	// Wakes names the queues that the function sends wake-ups to; Quarantines says that it sets malformed messages aside.
	Wakes       []string
	Quarantines bool
	// Rights are what the function may do beside that, to write its log, and to be fed by its queue.
	Rights []Right
}

// Right lets a function do something. Resources are named by what they are, and On says which of them are meant.
type Right struct {
	Actions []string
	On      Scope
}

// Scope names a set of resources and, where IAM can tell them apart by it, the tags that they must carry.
type Scope string

// The scopes. What "of a served cluster" means is in the CDK app: tags of the cluster, and of a NodePool or EC2NodeClass.
const (
	// Clusters is the part of the bucket that says how clusters are reached, Catalogue the object with instance types and prices.
	Clusters  Scope = "clusters"
	Catalogue Scope = "catalogue"
	Bucket    Scope = "bucket" // to list what it holds
	// Table is what clusters share about EC2.
	Table Scope = "table"
	// Region is everything in the region: reads that IAM cannot scope further.
	Region Scope = "region"
	// Launched is what a launch makes, and must tag as a served cluster's; LaunchInputs is what it is made from.
	Launched     Scope = "launched"
	LaunchInputs Scope = "launch-inputs"
	// Tagging puts tags on what a launch makes, in the call that makes it.
	Tagging Scope = "tagging"
	// Templates and Instances are those of served clusters; Names is the tags that name an instance once its node has joined.
	Templates Scope = "templates"
	Instances Scope = "instances"
	Names     Scope = "names"
	// NodeRoles are the roles of nodes, to be passed to EC2.
	NodeRoles Scope = "node-roles"
	// NewProfiles is instance profiles at their making, Profiles those of served clusters, AllProfiles the account's.
	NewProfiles Scope = "new-profiles"
	Profiles    Scope = "profiles"
	AllProfiles Scope = "all-profiles"
	// ProfileList is the list of them, which has no resources.
	ProfileList Scope = "profile-list"
	// Images are the public parameters that name machine images.
	Images Scope = "images"
	// Prices is the price list, which has no resources.
	Prices Scope = "prices"
	// Schedules are those of Treadle's group, SchedulerRole the role that they start the function expiry with.
	Schedules     Scope = "schedules"
	SchedulerRole Scope = "scheduler-role"
	// EKS is all clusters of the account: one that is served no longer has to be found to be uninstalled.
	EKS Scope = "eks"
)

// Functions returns the table.
func Functions() []Function {
	clusters := Right{[]string{"s3:GetObject"}, Clusters}
	// Without it S3 answers "denied" for an object that is not there, and nobody could tell a cluster that is not served from trouble.
	listed := Right{[]string{"s3:ListBucket"}, Bucket}
	shared := Right{[]string{"dynamodb:Query", "dynamodb:UpdateItem"}, Table}
	catalogue := Right{[]string{"s3:GetObject"}, Catalogue}
	look := Right{[]string{"ec2:DescribeInstances"}, Region}
	all := []string{"provision", "lifecycle", "disruption"}
	return []Function{
		{
			Name: "wake", MemoryMB: 128, Timeout: 5 * time.Second, Concurrency: 10, Wakes: all,
			Rights: []Right{clusters, listed},
		},
		{
			Name: "provision", MemoryMB: 512, Timeout: 60 * time.Second, Concurrency: 10, Queue: "provision", Batch: 10, Group: "treadle:provision",
			Wakes: []string{"provision", "lifecycle"}, Quarantines: true,
			Rights: []Right{
				clusters, listed, catalogue, shared,
				{[]string{
					"ec2:DescribeCapacityReservations", "ec2:DescribeImages", "ec2:DescribeLaunchTemplates", "ec2:DescribePlacementGroups",
					"ec2:DescribeSecurityGroups", "ec2:DescribeSubnets",
				}, Region},
				{[]string{"ec2:RunInstances", "ec2:CreateFleet"}, LaunchInputs},
				{[]string{"ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"}, Launched},
				{[]string{"ec2:CreateTags"}, Tagging},
				{[]string{"ec2:RunInstances", "ec2:CreateFleet", "ec2:DeleteLaunchTemplate"}, Templates},
				{[]string{"ssm:GetParameter"}, Images},
				{[]string{"iam:PassRole"}, NodeRoles},
				{[]string{"iam:CreateInstanceProfile", "iam:TagInstanceProfile"}, NewProfiles},
				{[]string{"iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"}, Profiles},
				{[]string{"iam:GetInstanceProfile"}, AllProfiles},
				{[]string{"iam:ListInstanceProfiles"}, ProfileList},
			},
		},
		{
			Name: "lifecycle", MemoryMB: 512, Timeout: 60 * time.Second, Concurrency: 10, Queue: "lifecycle", Batch: 1, Group: "treadle:lifecycle",
			Wakes: []string{"provision", "lifecycle"}, Quarantines: true,
			Rights: []Right{
				clusters, listed, look,
				{[]string{"ec2:TerminateInstances"}, Instances},
				{[]string{"ec2:CreateTags"}, Names},
				{[]string{"scheduler:CreateSchedule", "scheduler:DeleteSchedule", "scheduler:ListSchedules"}, Schedules},
				{[]string{"iam:PassRole"}, SchedulerRole},
			},
		},
		{
			Name: "disruption", MemoryMB: 512, Timeout: 60 * time.Second, Concurrency: 10, Queue: "disruption", Batch: 1, Group: "treadle:disruption",
			Wakes: all, Quarantines: true,
			Rights: []Right{clusters, listed, catalogue, shared, look},
		},
		{
			Name: "interruption", MemoryMB: 256, Timeout: 30 * time.Second, Concurrency: 5, Group: "treadle:lifecycle",
			Wakes: []string{"provision", "lifecycle"}, Quarantines: true,
			Rights: []Right{clusters, listed, look},
		},
		{
			Name: "expiry", MemoryMB: 256, Timeout: 30 * time.Second, Concurrency: 5, Group: "treadle:lifecycle",
			Wakes:  []string{"provision", "lifecycle"},
			Rights: []Right{clusters, listed},
		},
		{
			Name: "sweep", MemoryMB: 256, Timeout: 60 * time.Second, Concurrency: 1, Group: "treadle:sweep", Wakes: all,
			Rights: []Right{clusters, listed},
		},
		{
			Name: "catalog", MemoryMB: 512, Timeout: 120 * time.Second, Concurrency: 1,
			Rights: []Right{
				{[]string{"s3:GetObject", "s3:PutObject"}, Catalogue}, listed,
				{[]string{"ec2:DescribeInstanceTypes", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeSpotPriceHistory"}, Region},
				{[]string{"pricing:GetProducts"}, Prices},
			},
		},
		{
			Name: "install", MemoryMB: 256, Timeout: 120 * time.Second, Concurrency: 1, Admin: true,
			Rights: []Right{
				{[]string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}, Clusters}, listed,
				{[]string{"eks:DescribeCluster"}, EKS},
			},
		},
	}
}
