package bench;

import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Runs the workload that the environment names, in a cluster inside this process, until it is told to stop. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, Settings.configuration());
        environment.enableCheckpointing(Settings.commitInterval(),
                Settings.EXACTLY_ONCE ? CheckpointingMode.EXACTLY_ONCE : CheckpointingMode.AT_LEAST_ONCE);
        if ("yahoo".equals(Settings.WORKLOAD)) {
            Ads.build(environment);
        } else {
            Likes.build(environment);
        }
        environment.execute(Settings.WORKLOAD);
    }
}
