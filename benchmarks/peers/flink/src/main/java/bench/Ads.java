package bench;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.type.TypeReference;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Yahoo: views, joined to their campaigns, counted in windows of event time. Every second the counts that changed
 * go out; a window's last count goes out, marked final, when no view of it is expected any more.
 */
final class Ads {
    private static final long WINDOW = Long.parseLong(System.getenv().getOrDefault("BENCH_WINDOW_MS", "10000"));
    private static final long GRACE = Long.parseLong(System.getenv().getOrDefault("BENCH_GRACE_MS", "60000"));
    private static final long SECOND = 1000;

    public static class Ad {
        public String ad_id;
        public String event_type;
        public long event_time;
    }

    public static class View {
        public String campaign;
        public long at;
    }

    public static class Count {
        public String campaign;
        public long window;
        public long count;

        @JsonProperty("final")
        public boolean last;
    }

    private Ads() {}

    static void build(StreamExecutionEnvironment environment) {
        WatermarkStrategy<Ad> watermarks = WatermarkStrategy.<Ad>forBoundedOutOfOrderness(Duration.ofMillis(GRACE))
                .withTimestampAssigner((ad, timestamp) -> ad.event_time);
        environment.fromSource(Settings.source(new Json.Reader<>(Ad.class)), watermarks, "ads")
                .filter(ad -> ad.event_type.equals("view"))
                .flatMap(new Join())
                .keyBy(view -> view.campaign)
                .process(new Counter())
                .sinkTo(Settings.sink(new Json.Writer<>(Count.class, count -> count.campaign)));
    }

    private static final class Join extends RichFlatMapFunction<Ad, View> {
        private transient Map<String, String> campaigns;
        private transient View view;

        @Override
        public void open(OpenContext context) throws IOException {
            campaigns = Json.MAPPER.readValue(Path.of(Settings.CAMPAIGNS).toFile(), new TypeReference<>() {});
            view = new View();
        }

        @Override
        public void flatMap(Ad ad, Collector<View> out) {
            view.campaign = campaigns.get(ad.ad_id);
            view.at = ad.event_time;
            out.collect(view);
        }
    }

    private static final class Counter extends KeyedProcessFunction<String, View, Count> {
        private transient MapState<Long, Long> windows;
        private transient MapState<Long, Long> told;
        /** Whether the timer of a key is set; after a restore it is set again. */
        private transient Map<String, Boolean> ticking;

        @Override
        public void open(OpenContext context) {
            windows = getRuntimeContext().getMapState(new MapStateDescriptor<>("windows", Long.class, Long.class));
            told = getRuntimeContext().getMapState(new MapStateDescriptor<>("told", Long.class, Long.class));
            ticking = new HashMap<>();
        }

        @Override
        public void processElement(View view, Context context, Collector<Count> out) throws Exception {
            long window = view.at - view.at % WINDOW;
            Long known = windows.get(window);
            if (known == null) {
                context.timerService().registerEventTimeTimer(window + WINDOW - 1);
            }
            windows.put(window, known == null ? 1 : known + 1);
            if (ticking.put(view.campaign, true) == null) {
                tick(context);
            }
        }

        private void tick(Context context) {
            long now = context.timerService().currentProcessingTime();
            context.timerService().registerProcessingTimeTimer(now - now % SECOND + SECOND);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<Count> out) throws Exception {
            if (context.timeDomain() == TimeDomain.EVENT_TIME) {
                long window = timestamp - WINDOW + 1;
                emit(context.getCurrentKey(), window, windows.get(window), true, out);
                windows.remove(window);
                told.remove(window);
                return;
            }
            for (Map.Entry<Long, Long> entry : windows.entries()) {
                if (!entry.getValue().equals(told.get(entry.getKey()))) {
                    emit(context.getCurrentKey(), entry.getKey(), entry.getValue(), false, out);
                    told.put(entry.getKey(), entry.getValue());
                }
            }
            tick(context);
        }

        private static void emit(String campaign, long window, long count, boolean last, Collector<Count> out) {
            Count counted = new Count();
            counted.campaign = campaign;
            counted.window = window;
            counted.count = count;
            counted.last = last;
            out.collect(counted);
        }
    }
}
