package treadle

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"treadle/infra/deployment"
)

// watch makes the alarms that somebody has to act on, and a dashboard.
func (t *Treadle) watch() {
	minute := awscdk.Duration_Minutes(jsii.Number(1))
	var alarms []awscloudwatch.Alarm
	var ages, errors, durations []awscloudwatch.IMetric
	for _, f := range deployment.Functions() {
		function := t.Functions[f.Name]
		options := &awscloudwatch.MetricOptions{Period: minute, Label: jsii.String(f.Name)}
		errors = append(errors, function.MetricErrors(options))
		durations = append(durations, function.MetricDuration(options))
		queue, fed := t.Queues[f.Name]
		if !fed {
			continue
		}
		age := queue.MetricApproximateAgeOfOldestMessage(options)
		ages = append(ages, age)
		alarms = append(alarms,
			age.CreateAlarm(t.scope_, jsii.String(title(f.Name)+"Late"), &awscloudwatch.CreateAlarmOptions{
				AlarmDescription: jsii.String("Wake-ups of function " + f.Name + " wait for more than five minutes: look at its log and its concurrency"),
				Threshold:        jsii.Number(300), EvaluationPeriods: jsii.Number(3), TreatMissingData: awscloudwatch.TreatMissingData_NOT_BREACHING,
			}),
			t.Dead[f.Name].MetricApproximateNumberOfMessagesVisible(options).CreateAlarm(t.scope_, jsii.String(title(f.Name)+"Lost"), &awscloudwatch.CreateAlarmOptions{
				AlarmDescription: jsii.String("Function " + f.Name + " failed ten times at a message, which is in its dead-letter queue now"),
				Threshold:        jsii.Number(1), EvaluationPeriods: jsii.Number(1), TreatMissingData: awscloudwatch.TreatMissingData_NOT_BREACHING,
			}))
	}
	alarms = append(alarms, t.quarantine.MetricApproximateNumberOfMessagesVisible(&awscloudwatch.MetricOptions{Period: minute}).CreateAlarm(
		t.scope_, jsii.String("QuarantineFilled"), &awscloudwatch.CreateAlarmOptions{
			AlarmDescription: jsii.String("A message that nobody understands was set aside: look into the quarantine queue"),
			Threshold:        jsii.Number(1), EvaluationPeriods: jsii.Number(1), TreatMissingData: awscloudwatch.TreatMissingData_NOT_BREACHING,
		}))
	if t.props.AlarmTopicARN != "" {
		topic := awssns.Topic_FromTopicArn(t.scope_, jsii.String("AlarmTopic"), jsii.String(t.props.AlarmTopicARN))
		for _, a := range alarms {
			a.AddAlarmAction(awscloudwatchactions.NewSnsAction(topic))
		}
	}
	graph := func(title string, metrics []awscloudwatch.IMetric) awscloudwatch.IWidget {
		return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{Title: jsii.String(title), Left: &metrics, Width: jsii.Number(12), Height: jsii.Number(6)})
	}
	counts := func(title, function string, names ...string) awscloudwatch.IWidget {
		var metrics []awscloudwatch.IMetric
		for _, name := range names {
			metrics = append(metrics, awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
				Namespace: jsii.String("Treadle"), MetricName: jsii.String(name), Statistic: jsii.String("Sum"), Period: minute, Label: jsii.String(name),
				DimensionsMap: &map[string]*string{"function": jsii.String(function)},
			}))
		}
		return graph(title, metrics)
	}
	board := awscloudwatch.NewDashboard(t.scope_, jsii.String("Dashboard"), nil)
	board.AddWidgets(
		counts("Launches and refusals", "provision", "NodeClaimsLaunched", "OfferingsRefused"),
		counts("Nodes that join and go", "lifecycle", "NodeClaimsRegistered", "NodeClaimsInitialized", "NodeClaimsTerminated", "OrphansTerminated"),
	)
	board.AddWidgets(
		counts("Disruption by choice", "disruption", "NodesDisruptedDrifted", "NodesDisruptedUnderutilized"),
		counts("Interruptions", "interruption", "NodeClaimsInterrupted", "EventsForeign", "EventsIgnored", "Quarantined"),
	)
	board.AddWidgets(graph("Age of the oldest message (s)", ages), graph("Errors", errors))
	board.AddWidgets(graph("Duration (ms)", durations), awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
		Title: jsii.String("Alarms"), Alarms: shown(alarms), Width: jsii.Number(12), Height: jsii.Number(6),
	}))
}

func shown(alarms []awscloudwatch.Alarm) *[]interfacesawscloudwatch.IAlarmRef {
	out := make([]interfacesawscloudwatch.IAlarmRef, 0, len(alarms))
	for _, a := range alarms {
		out = append(out, a)
	}
	return &out
}
